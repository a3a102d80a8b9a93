"""The front door before the real engine: what a client that leaves, or a worker that dies, does.

The model is the demo's with an end token that it never says, so that an answer lasts until the
length limit unless something ends it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from chiasm_contract.config import EngineLimits, SidecarConfig, WorkerConfig

from tests.sidecar.conftest import data_url, png, question, until

DEMO_MODEL = Path(__file__).resolve().parents[2] / "demo" / "model"
LIMITS = EngineLimits(kv_cache_bytes=2**25, max_num_seqs=4, max_waiting_requests=4)
PICTURE = data_url(png(168, 168))


def endless_model(folder: Path) -> Path:
    folder.mkdir()
    for file in DEMO_MODEL.iterdir():
        (folder / file.name).symlink_to(file)
    settings = json.loads((DEMO_MODEL / "generation_config.json").read_text())
    (folder / "generation_config.json").unlink()
    never = json.dumps({**settings, "eos_token_id": 2**30})
    (folder / "generation_config.json").write_text(never)
    return folder


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        for sock in (one, two):
            sock.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


class Pair:
    """A worker and a sidecar as their own processes."""

    def __init__(self, folder: Path) -> None:
        self.ports = free_ports()
        self.url, self.metrics_url = (f"http://127.0.0.1:{port}" for port in self.ports)
        worker = WorkerConfig(
            model_id="demo",
            model_path=endless_model(folder / "model"),
            num_threads=1,
            engine=LIMITS,
            socket_path=folder / "worker.sock",
        )
        sidecar = SidecarConfig(
            model_id="demo",
            worker_socket=worker.socket_path,
            host="127.0.0.1",
            api_port=self.ports[0],
            metrics_port=self.ports[1],
        )
        self.commands = {}
        for name, config in (("worker", worker), ("sidecar", sidecar)):
            path = folder / f"{name}.json"
            path.write_text(config.model_dump_json())
            self.commands[name] = [
                sys.executable, "-m", "chiasm_cli", name, "run", "--config", str(path),
            ]  # fmt: skip
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start("worker")
        self.start("sidecar")

    def start(self, name: str) -> None:
        self.processes[name] = subprocess.Popen(self.commands[name], stderr=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    running = Pair(tmp_path_factory.mktemp("pair"))
    yield running
    for name in running.processes:
        running.kill(name)


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[openai.AsyncOpenAI]:
    base_url = f"{pair.url}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=0) as client:
        await ready(pair)
        yield client


async def ready(pair: Pair) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(120):
        while True:
            try:
                async with http.get(f"{pair.url}/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def metric(pair: Pair, name: str) -> float:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{pair.metrics_url}/metrics") as answer,
    ):
        for line in (await answer.text()).splitlines():
            if line.startswith(f"{name} "):
                return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"{name} is not exposed")


def asked(**fields: Any) -> dict[str, Any]:
    return question(PICTURE, temperature=0, **fields)


async def test_streamed_or_not_the_answer_is_the_same(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(**asked(max_tokens=8))
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 8
    assert whole.choices[0].finish_reason == "length"
    stream = await client.chat.completions.create(
        **asked(max_tokens=8), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert (usage.prompt_tokens_details.cached_tokens or 0) > 0, "the picture was seen before"
    assert (usage.prompt_tokens_details.image_tokens or 0) > 0


async def test_detail_shrinks_the_prompt_and_usage_says_so(client: openai.AsyncOpenAI) -> None:
    shown = {}
    for detail in ("auto", "high", "low"):
        body = asked(max_tokens=2)
        body["messages"][0]["content"][1]["image_url"]["detail"] = detail
        usage = (await client.chat.completions.create(**body)).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        shown[detail] = (usage.prompt_tokens, usage.prompt_tokens_details.model_dump())
    before, full = shown["high"]
    after, low = shown["low"]
    assert full == shown["auto"][1] | {"cached_tokens": full["cached_tokens"]}
    assert (full["image_compression"], low["image_compression"]) == ([1], [8])
    assert low["uncompressed_image_tokens"] == full["image_tokens"]
    assert before - after == full["image_tokens"] - low["image_tokens"] > 0


async def test_logprobs(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        **asked(max_tokens=3, logprobs=True, top_logprobs=2)
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 3
    for chosen in logprobs.content:
        assert chosen.top_logprobs[0].logprob == chosen.logprob, "greedy takes the likeliest"
        assert len(chosen.top_logprobs) == 2


SAMPLED: dict[str, Any] = {
    "seed": 5, "max_tokens": 12, "temperature": 1.5, "presence_penalty": 0.5,
    "frequency_penalty": 0.5, "logit_bias": {"40": 2},
    "extra_body": {"top_k": 60, "min_p": 0.01, "repetition_penalty": 1.1, "min_tokens": 12},
}  # fmt: skip


async def test_choices_share_one_prompt(pair: Pair, client: openai.AsyncOpenAI) -> None:
    encoded = 'chiasm_worker_encode_calls_total{model_name="demo"}'
    prompts = 'vllm:prompt_tokens_total{model_name="demo"}'
    steps = 'chiasm_worker_step_tokens_total{model_name="demo"}'
    before = [await metric(pair, name) for name in (encoded, prompts, steps)]
    body = question(data_url(png(196, 168)), **SAMPLED)
    whole = await client.chat.completions.create(**body, n=4)
    after = [await metric(pair, name) for name in (encoded, prompts, steps)]
    assert whole.usage is not None
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1
    assert whole.usage.completion_tokens == 48
    assert after[0] - before[0] == 1, "the picture is encoded once"
    assert after[1] - before[1] == whole.usage.prompt_tokens, "the prompt counts once"
    # The other choices compute the prompt's last block and their own tokens, no more.
    assert after[2] - before[2] <= whole.usage.prompt_tokens + 3 * LIMITS.block_size + 4 * 11

    stream = await client.chat.completions.create(
        **body, n=4, stream=True, stream_options={"include_usage": True}
    )
    streamed: dict[int, str] = dict.fromkeys(range(4), "")
    ended, order = set(), []
    async for chunk in stream:
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
            order.append(choice.index)
            if choice.finish_reason:
                ended.add(choice.index)
    assert list(streamed.values()) == texts
    assert ended == {0, 1, 2, 3}
    assert order != sorted(order)
    assert chunk.usage is not None
    assert chunk.usage.completion_tokens == 48


async def test_a_seed_gives_the_same_text_alone_and_in_company(client: openai.AsyncOpenAI) -> None:
    async def text(number: int, **fields: Any) -> str | None:
        body = question(data_url(png(168, 140 + 28 * number)), **{**SAMPLED, **fields})
        answer = await client.chat.completions.create(**body)
        return answer.choices[0].message.content

    alone = [await text(number) for number in range(3)]
    assert await asyncio.gather(*(text(number) for number in range(3))) == alone
    assert len({await text(0, seed=None) for _ in range(6)}) > 1


async def test_stop_strings_and_logprobs_agree_streamed_or_not(client: openai.AsyncOpenAI) -> None:
    plain = await client.chat.completions.create(**asked(max_tokens=12))
    text = plain.choices[0].message.content or ""
    stop = text[4:7]
    body = {**asked(max_tokens=12), "stop": [stop, "never"], "logprobs": True, "top_logprobs": 1}
    whole = await client.chat.completions.create(**body)
    choice = whole.choices[0]
    assert choice.message.content == text[: text.index(stop)]
    assert choice.finish_reason == "stop"
    assert choice.model_extra is not None
    assert choice.model_extra["stop_reason"] == stop
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    spelled = b"".join(bytes(token.bytes or ()) for token in choice.logprobs.content)
    assert spelled.startswith(choice.message.content.encode())
    stream = await client.chat.completions.create(**body, stream=True)
    chunks = [chunk.choices[0] async for chunk in stream if chunk.choices]
    assert "".join(chunk.delta.content or "" for chunk in chunks) == choice.message.content
    entries = [e for c in chunks if c.logprobs for e in c.logprobs.content or ()]
    assert entries == choice.logprobs.content
    kept = await client.chat.completions.create(
        **body, extra_body={"include_stop_str_in_output": True}
    )
    assert kept.choices[0].message.content == choice.message.content + stop


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"n": 9}, "n", "Ask for 1 to 8"),
        ({"logit_bias": {"999999": 1}}, "logit_bias", "names token 999999"),
        ({"extra_body": {"stop_token_ids": [999999]}}, "stop_token_ids", "names token 999999"),
        ({"extra_body": {"min_p": 2}}, "min_p", "is 2; allowed: a number from 0 to 1"),
        ({"extra_body": {"min_tokens": 5000}}, "min_tokens", "leaves room for"),
    ],
)
async def test_wishes_that_cannot_be_obeyed(
    client: openai.AsyncOpenAI, fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await client.chat.completions.create(**asked(), **fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "picture",
    [png(168, 168)[:-30], png(168, 168)[:70], png(168, 168, "JPEG")[:400], png(3000, 2)],
)
async def test_pictures_that_only_a_decoder_sees_through(
    client: openai.AsyncOpenAI, picture: bytes
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**question(data_url(picture), max_tokens=1))
    assert caught.value.param == "messages[0].content[1].image_url.url"


async def test_prompt_too_long(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="at most") as caught:
        await client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "circle " * 5000}]
        )
    assert caught.value.code == "context_length_exceeded"


async def none_used(pair: Pair) -> bool:
    used = 'chiasm_worker_blocks{model_name="demo",state="used"}'
    running = 'vllm:num_requests_running{model_name="demo"}'
    return await metric(pair, used) == 0 and await metric(pair, running) == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_clients_that_leave_free_their_blocks(
    pair: Pair, client: openai.AsyncOpenAI, stream: bool
) -> None:
    aborted = 'chiasm_worker_requests_aborted_total{model_name="demo"}'
    before = await metric(pair, aborted)
    asking = [asyncio.create_task(_consume(client, stream, f"{number}")) for number in range(4)]

    async def all_running() -> bool:
        return await metric(pair, 'vllm:num_requests_running{model_name="demo"}') == 4

    await until(all_running)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await until(lambda: none_used(pair))
    assert await metric(pair, aborted) == before + 4


async def _consume(client: openai.AsyncOpenAI, stream: bool, word: str) -> None:
    body = asked(stream=stream)
    body["messages"][0]["content"][0]["text"] = word
    answer = await client.chat.completions.create(**body)
    if stream:
        async for _ in answer:
            pass


async def test_too_many_at_once_are_told_to_wait(pair: Pair, client: openai.AsyncOpenAI) -> None:
    asking = [asyncio.create_task(_consume(client, False, str(number))) for number in range(20)]
    done, running = await asyncio.wait(asking, return_when=asyncio.FIRST_EXCEPTION)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    (error, *_) = [task.exception() for task in done if task.exception()]
    assert isinstance(error, openai.RateLimitError)
    assert int(error.response.headers["retry-after"]) >= 1
    await until(lambda: none_used(pair))


async def test_worker_that_dies_and_comes_back(pair: Pair, client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(**asked(stream=True))
    await anext(stream)
    pair.kill("worker")
    with pytest.raises(openai.APIError, match="ask again"):
        async for _ in stream:
            pass
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(**asked(max_tokens=1))
    assert caught.value.status_code == 503
    assert "retry-after" in caught.value.response.headers
    pair.start("worker")
    await ready(pair)
    answer = await client.chat.completions.create(**asked(max_tokens=1))
    assert answer.choices[0].message.content is not None
    assert await metric(pair, "chiasm_sidecar_worker_restarts_total") == 1


async def test_one_exposition_for_the_pod(pair: Pair, client: openai.AsyncOpenAI) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{pair.metrics_url}/metrics") as answer,
    ):
        text = await answer.text()
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(families)) == len(families)
    assert {"vllm:kv_cache_usage_perc", "vllm:time_to_first_token_seconds"} <= set(families)
    assert client is not None
