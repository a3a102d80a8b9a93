"""Chat requests over real connections: answers, faults, clients and workers that go away."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import openai
import pytest
from chiasm_contract.errors import (
    ChiasmError,
    ErrorBody,
    InvalidRequest,
    Overloaded,
    RequestTooLarge,
    Unavailable,
)
from chiasm_contract.messages import ErrorEvent, FinishEvent, MediaFiles, TokenEvent
from chiasm_sidecar.front_door import bodies, chat

from tests.sidecar.conftest import (
    ANSWER,
    MP4,
    USAGE,
    WAV,
    Pod,
    StartPod,
    cut,
    data_url,
    forever,
    identity,
    png,
    question,
    sound_part,
    until,
    video_part,
)

TOKEN = TokenEvent(text="red", token_ids=(5,))


def client_of(pod: Pod) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{pod.url}/v1", api_key="-", max_retries=0)


async def test_openai_client(pod: Pod) -> None:
    async with client_of(pod) as client:
        answer = await client.chat.completions.create(**question(data_url(png())))
        assert answer.choices[0].message.content == "red disc"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.system_fingerprint == pod.worker.identity.compute_fp[:16]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 4
        head, pictures = pod.worker.requests[-1]
        assert head.request_id == answer.id
        assert pictures == (png(),)
        models = await client.models.list()
        assert [model.id for model in models.data] == ["demo"]
        assert (await client.models.retrieve("demo")).id == "demo"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other/model")


async def test_priority_reaches_the_worker(pod: Pod) -> None:
    async with client_of(pod) as client:
        await client.chat.completions.create(**question(), extra_body={"priority": -2})
        assert pod.worker.requests[-1][0].priority == -2
        await client.chat.completions.create(**question())
        assert pod.worker.requests[-1][0].priority == 0


async def test_openai_client_streaming(pod: Pod) -> None:
    async with client_of(pod) as client:
        stream = await client.chat.completions.create(
            **question(), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert words == ["", "red", " disc", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 22


async def test_choices_reach_the_client_apart(pod: Pod) -> None:
    pod.worker.answer = (
        TokenEvent(index=1, text="b", token_ids=(1,)),
        TokenEvent(index=0, text="a", token_ids=(1,)),
        FinishEvent(index=1, reason="length", usage=None),
        TokenEvent(index=0, text="aa", token_ids=(1,)),
        FinishEvent(index=0, reason="stop", usage=USAGE),
    )
    async with client_of(pod) as client:
        answer = await client.chat.completions.create(**question(n=2))
        texts = [choice.message.content for choice in answer.choices]
        reasons = [choice.finish_reason for choice in answer.choices]
        assert (texts, reasons) == (["aaa", "b"], ["stop", "length"])
        assert pod.worker.requests[-1][0].sampling.n == 2
        stream = await client.chat.completions.create(**question(n=2), stream=True)
        choices = [chunk.choices[0] async for chunk in stream]
    assert [c.index for c in choices if c.delta.content] == [1, 0, 0]
    assert [c.index for c in choices if c.finish_reason] == [1, 0]


async def test_an_answer_of_which_a_choice_is_missing_is_not_whole(pod: Pod) -> None:
    pod.worker.answer = (TOKEN, FinishEvent(index=0, reason="stop", usage=None))
    assert (await pod.chat(question(n=2)))[0] == 503


async def test_an_answer_can_be_sent_back(pod: Pod) -> None:
    async with client_of(pod) as client:
        answer = await client.chat.completions.create(**question())
        turn = question()["messages"][0]
        messages = [turn, answer.choices[0].message.model_dump(), turn]
        await client.chat.completions.create(model="demo", messages=messages)  # type: ignore[arg-type]
    assert [turn.role for turn in pod.worker.requests[-1][0].messages] == [
        "user", "assistant", "user",
    ]  # fmt: skip


REFUSALS: list[tuple[ChiasmError, type[openai.APIStatusError], int]] = [
    (InvalidRequest("Truncated picture.", param="messages"), openai.BadRequestError, 400),
    (RequestTooLarge("The prompt is long."), openai.APIStatusError, 413),
    (Overloaded("Full.", retry_after_seconds=3), openai.RateLimitError, 429),
    (Unavailable("Gone.", retry_after_seconds=3), openai.InternalServerError, 503),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_workers_refusals_reach_the_client(pod: Pod, stream: bool) -> None:
    async with client_of(pod) as client:
        for refusal, kind, status in REFUSALS:
            pod.worker.refusal = refusal
            with pytest.raises(kind) as caught:
                await client.chat.completions.create(**question(), stream=stream)
            assert caught.value.status_code == status
            assert caught.value.body["message"] == refusal.message  # type: ignore[index]
            assert caught.value.param == refusal.param
            expected = str(refusal.retry_after_seconds) if refusal.retry_after_seconds else None
            assert caught.value.response.headers.get("retry-after") == expected


async def test_request_ids(pod: Pod) -> None:
    address = f"{pod.url}/v1/chat/completions"
    async with pod.http.post(address, json=question(), headers={"X-Request-Id": "a-1"}) as answer:
        assert answer.headers["x-request-id"] == "a-1"
    async with pod.http.post(address, json=question()) as answer:
        assert len(answer.headers["x-request-id"]) == 32
    for bad in ("x" * 129, "a b", "ä"):
        status, body = await pod.chat(question(), **{"X-Request-Id": bad})
        assert (status, body["error"]["param"]) == (400, "X-Request-Id")


async def test_equal_request_ids_do_not_meet_in_the_worker(pod: Pod) -> None:
    for _ in range(2):
        await pod.chat(question(), **{"X-Request-Id": "same"})
    first, second = (head.request_id for head, _ in pod.worker.requests[-2:])
    assert first != second


@pytest.mark.parametrize("announced", [True, False])
async def test_body_too_large(start_pod: StartPod, announced: bool) -> None:
    pod = await start_pod(max_body_bytes=1024)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x" * 1000

    data = b"x" * 2000 if announced else pieces()
    async with pod.http.post(f"{pod.url}/v1/chat/completions", data=data) as answer:
        assert answer.status == 413
        assert "larger than 1024 bytes" in (await answer.json())["error"]["message"]


async def test_bodies_on_their_way_are_limited_together(
    start_pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MIN_HELD_BYTES", 0)
    pod = await start_pod(max_body_bytes=2**18)
    address = f"{pod.url}/v1/chat/completions"
    go_on = asyncio.Event()
    arrived = asyncio.Queue[None]()

    async def slowly() -> AsyncIterator[bytes]:
        yield b" " * 240_000
        arrived.put_nowait(None)
        await go_on.wait()
        yield json.dumps(question()).encode()

    async def post() -> int:
        async with pod.http.post(address, data=slowly()) as answer:
            return answer.status

    early = [asyncio.create_task(post()) for _ in range(2)]
    for _ in early:
        await arrived.get()
    async with pod.http.post(address, data=b" " * 240_000) as answer:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert "at once" in (await answer.json())["error"]["message"]
    go_on.set()
    assert await asyncio.gather(*early) == [200, 200]
    assert (await pod.chat(b" " * 240_000 + json.dumps(question()).encode()))[0] == 200


async def test_a_faulty_picture_is_named_by_its_place(pod: Pod) -> None:
    pod.worker.refusal = InvalidRequest("Picture 2 cannot be decoded.", param="images[1]")
    _, body = await pod.chat(question(data_url(png()), data_url(png())))
    assert body["error"]["param"] == "messages[0].content[2].image_url.url"
    pod.worker.refusal = InvalidRequest("No detail.", param="images[0].detail")
    _, body = await pod.chat(question(data_url(png()), data_url(png())))
    assert body["error"]["param"] == "messages[0].content[1].image_url.detail"
    pod.worker.refusal = InvalidRequest("Which?", param="images[7]")
    _, body = await pod.chat(question(data_url(png())))
    assert body["error"]["param"] == "images[7]"


async def test_videos_and_sounds_reach_the_worker(start_pod: StartPod) -> None:
    one = {"max_per_prompt": 1}
    pod = await start_pod(videos=one, audios=one)
    body = question(data_url(png()))
    body["messages"][0]["content"] += [sound_part(), video_part()]
    status, _ = await pod.chat(body)
    assert status == 200
    assert pod.worker.files == MediaFiles((png(),), (MP4,), (WAV,))
    pod.worker.refusal = InvalidRequest("Video 1 is truncated.", param="videos[0]")
    assert (await pod.chat(body))[1]["error"]["param"] == "messages[0].content[3].video_url.url"
    pod.worker.refusal = InvalidRequest("Sound 1 is truncated.", param="audios[0]")
    assert (await pod.chat(body))[1]["error"]["param"] == "messages[0].content[2].input_audio.data"
    expected = {
        'chiasm_sidecar_requests_total{code="200",modality="mixed"}': 1,
        'chiasm_sidecar_videos_total{format="mp4"}': 1,
        'chiasm_sidecar_audios_total{format="wav"}': 1,
        "chiasm_sidecar_video_bytes_sum": len(MP4),
        "chiasm_sidecar_audio_bytes_sum": len(WAV),
    }
    assert {name: await pod.metric(name) for name in expected} == expected


async def test_a_bug_is_logged_without_what_was_asked(
    pod: Pod, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(body: bytes, *_: object) -> None:
        raise RuntimeError(body.decode())

    monkeypatch.setattr("chiasm_sidecar.front_door.chat.prepare", broken)
    status, body = await pod.chat(question())
    assert (status, body["error"]["code"]) == (500, "internal_error")
    (line,) = [record for record in caplog.records if record.name == "chiasm.sidecar.chat"]
    assert line.fields["error"] == "RuntimeError"  # type: ignore[attr-defined]
    assert "What is it?" not in str(line.__dict__)


async def test_large_bodies_are_parsed(pod: Pod) -> None:
    status, _ = await pod.chat(question(data_url(png(600, 400, "BMP"))))
    assert status == 200
    assert len(pod.worker.requests[-1][1][0]) > 700_000


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_its_generation(pod: Pod, stream: bool) -> None:
    pod.worker.answer = (TOKEN, forever)
    request = asyncio.create_task(pod.chat(question(stream=stream)))
    await until(pod.worker.busy)
    request.cancel()
    async with asyncio.timeout(20):
        await pod.worker.abandoned.wait()

    async def counted() -> bool:
        return await pod.metric('chiasm_sidecar_requests_total{code="499",modality="text"}') == 1

    await until(counted)
    assert await pod.metric("chiasm_sidecar_requests_in_progress") == 0
    aborted = 'vllm:request_success_total{finished_reason="abort",model_name="demo"}'
    assert await pod.metric(aborted) == 1


async def test_worker_cut_before_the_first_token(pod: Pod) -> None:
    pod.worker.answer = (cut,)
    for stream in (False, True):
        status, body = await pod.chat(question(stream=stream))
        assert (status, body["error"]["type"]) == (503, "service_unavailable_error")


async def test_worker_cut_within_an_answer(pod: Pod) -> None:
    pod.worker.answer = (TOKEN, cut)
    status, body = await pod.chat(question())
    assert status == 503
    assert "ask again" in body["error"]["message"]
    async with client_of(pod) as client:
        stream = await client.chat.completions.create(**question(), stream=True)
        with pytest.raises(openai.APIError, match="ended before the answer did"):
            async for _ in stream:
                pass
    assert await pod.metric('chiasm_sidecar_worker_failures_total{reason="cut"}') == 2
    assert await pod.metric('chiasm_sidecar_requests_total{code="503",modality="text"}') == 2


async def test_answer_without_end_is_not_taken_for_whole(pod: Pod) -> None:
    pod.worker.answer = (TOKEN,)
    assert (await pod.chat(question()))[0] == 503


async def test_fault_that_the_worker_reports_within_an_answer(pod: Pod) -> None:
    body = ErrorBody(status=500, code="engine_failed", message="The engine failed.")
    pod.worker.answer = (TOKEN, ErrorEvent(error=body))
    status, answer = await pod.chat(question())
    assert (status, answer["error"]["code"]) == (500, "engine_failed")


async def test_replaced_worker_is_not_taken_for_the_admitted_one(pod: Pod) -> None:
    pod.worker.identity = identity("two")
    status, body = await pod.chat(question())
    assert status == 503
    assert "replaced" in body["error"]["message"]
    await pod.until("Ready")
    assert (await pod.chat(question()))[0] == 200


async def test_time_limit(start_pod: StartPod) -> None:
    pod = await start_pod(request_timeout_seconds=0.2)
    pod.worker.answer = (forever,)
    status, body = await pod.chat(question())
    assert status == 503
    assert "longer than 0.2 s" in body["error"]["message"]
    async with asyncio.timeout(20):
        await pod.worker.abandoned.wait()


@pytest.mark.parametrize(("request_seconds", "body_seconds"), [(0.2, 60), (600, 0.2)])
async def test_body_that_does_not_arrive(
    start_pod: StartPod,
    monkeypatch: pytest.MonkeyPatch,
    request_seconds: float,
    body_seconds: float,
) -> None:
    monkeypatch.setattr(chat, "MAX_BODY_SECONDS", body_seconds)
    pod = await start_pod(request_timeout_seconds=request_seconds)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"{"
        await forever_still()

    forever_still = asyncio.Event().wait
    async with pod.http.post(f"{pod.url}/v1/chat/completions", data=pieces()) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] == "request_timeout"


async def test_logprobs(pod: Pod) -> None:
    await pod.chat(question(logprobs=True, top_logprobs=2))
    assert pod.worker.requests[-1][0].sampling.logprobs == 2


async def test_unknown_paths_and_methods(pod: Pod) -> None:
    async with pod.http.get(f"{pod.url}/v1/engines") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "not_found"
    async with pod.http.get(f"{pod.url}/v1/chat/completions") as answer:
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"
    async with pod.http.get(f"{pod.url}/health") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    for url in (pod.url, pod.metrics_url):
        for path in ("/health", "/ready", "/v1/models", "/v1/models/demo", "/metrics", "/state"):
            async with pod.http.get(url + path) as got, pod.http.head(url + path) as head:
                assert (head.status, await head.read()) == (got.status, b"")
    async with pod.http.get(f"{pod.url}/openapi.json") as answer:
        schema = await answer.json()
    assert "/v1/chat/completions" in schema["paths"]


async def test_access_log_says_who_and_how_much_but_not_what(
    start_pod: StartPod, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quiet = await start_pod()
    await quiet.chat(question(user="user-7"))
    assert not [record for record in caplog.records if record.name == "chiasm.sidecar.access"]
    pod = await start_pod(access_log=True)
    url = data_url(png())
    await pod.chat(question(url, user="user-7"), **{"X-Request-Id": "r-1"})
    (line,) = [record for record in caplog.records if record.name == "chiasm.sidecar.access"]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["user"] == "user-7"
    assert fields["request_id"] == "r-1"
    assert fields["prompt_tokens"] == 20
    everything = json.dumps([record.__dict__ for record in caplog.records], default=str)
    for secret in ("What is it?", url[30:60], "red disc"):
        assert secret not in everything


async def test_many_at_once(pod: Pod) -> None:
    answers = await asyncio.gather(
        *(pod.chat(question(stream=False, temperature=0)) for _ in range(50))
    )
    assert {status for status, _ in answers} == {200}
    assert len({body["id"] for _, body in answers}) == 50
    assert pod.worker.answer == ANSWER
    assert isinstance(ANSWER[-1], FinishEvent)
    assert ANSWER[-1].usage == USAGE
