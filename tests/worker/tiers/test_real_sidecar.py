"""Worker and sidecar as a pod runs them: what one worker wrote, the next one starts from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from chiasm_contract.config import ImageLimits, SidecarConfig, WorkerConfig
from chiasm_contract.fingerprint import Scope, scope_fp
from chiasm_contract.tiers import BlockService, BlockTiers, DiskTier
from chiasm_sidecar.server import Running, listen, running
from chiasm_worker.tiers.wanted import Patience
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.server.folders import Folder
from tests.worker.server.running_worker import Worker, body, events, serving, tiny_config, until

WORDS = "What stands left of the tin, and what behind it? Answer in a word or two, please."
OTHERS = scope_fp(Scope(tenant="b" * 64, adapter="base", track="stable"))


@pytest.fixture
def worker_config(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> WorkerConfig:
    return tiny_config(
        tmp_path,
        tiny_folder("qwen3-grouped"),
        images=ImageLimits(max_per_prompt=2, max_bytes=40_000),
        block_service=BlockService(socket_path=tmp_path / "kv.sock"),
    )


@asynccontextmanager
async def sidecar(folder: Path, **expected: str) -> AsyncIterator[Running]:
    config = SidecarConfig(
        model_id="tiny",
        worker_socket=folder / "w.sock",
        images=ImageLimits(max_per_prompt=2, max_bytes=40_000),
        expected_identity=expected,
        tiers=BlockTiers(
            socket_path=folder / "kv.sock",
            staging_path=folder / "kv.staging",
            staging_bytes=2**22,
            host_bytes=2**22,
            disk=DiskTier(path=folder / "blocks", max_bytes=2**22),
        ),
    )
    async with running(config, listen("127.0.0.1", 0), listen("127.0.0.1", 0)) as one:
        yield one


async def metrics(worker: Worker) -> dict[str, float]:
    """Name, and values of labels beside the model's, -> value; of the worker."""
    text = (await worker.client.get("/metrics")).text
    return {
        ".".join([sample.name, *(v for k, v in sample.labels.items() if k != "model_name")]): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def connected(worker: Worker) -> None:
    assert worker.state.serving is not None
    service = worker.state.serving.service
    # On a busy machine computing is quicker than asking, and then nothing is asked for long.
    service._patience = Patience(60.0, 60.0)
    engine = service.engine
    await until(lambda: engine.tier_link.staging is not None)


async def answer(worker: Worker, *pictures: bytes, scope: str = "") -> list[int]:
    fields = {"scope_fp": scope} if scope else {}
    content = body(WORDS, pictures, max_tokens=6, ignore_eos=True, **fields)
    *tokens, _ = events(await worker.client.post("/generate", content=content))
    return [token_id for token in tokens for token_id in token.token_ids]


async def kept(worker: Worker) -> None:
    """Until the sidecar has answered for all that was offered."""
    assert worker.state.serving is not None
    counters = worker.state.serving.service.engine.tier_link.counters
    await until(lambda: 0 < counters.offered_blocks.total() == counters.stored.total())


async def test_a_worker_that_starts_again_starts_from_what_the_last_one_wrote(
    worker_config: WorkerConfig, tmp_path: Path, picture: Callable[..., bytes]
):
    async with sidecar(tmp_path):
        async with serving(worker_config) as first:
            await connected(first)
            want = await answer(first, picture(1))
            await kept(first)
            wrote = await metrics(first)
        async with serving(worker_config) as second:
            await connected(second)
            before = await metrics(second)
            assert await answer(second, picture(1)) == want
            after = await metrics(second)
    name = "chiasm_worker_tier_offered_blocks_total"
    assert wrote[f"{name}.encoder_output"] > 0
    assert wrote[f"{name}.media_kv"] > 0

    def gained(name: str) -> float:
        return after[name] - before[name]

    assert gained("chiasm_worker_encode_calls_total") == 0
    assert gained("chiasm_worker_tier_restored_tokens_total.media_kv") > 0
    assert gained("chiasm_worker_tier_verdicts_total.commit.use") > 0
    assert gained("vllm:prefix_cache_hits_total") > 0
    assert after["chiasm_worker_tier_connected"] == 1
    # Its first token took the end of the prompt only: what stands behind the picture.
    assert gained("chiasm_worker_step_tokens_total") < gained("vllm:prompt_tokens_total")


async def test_a_pod_that_starts_again_starts_from_its_disk(
    worker_config: WorkerConfig, tmp_path: Path, picture: Callable[..., bytes]
):
    async with sidecar(tmp_path), serving(worker_config) as first:
        await connected(first)
        want = await answer(first, picture(1))
        await kept(first)
    async with sidecar(tmp_path), serving(worker_config) as second:
        await connected(second)
        encoded = (await metrics(second))["chiasm_worker_encode_calls_total"]
        assert await answer(second, picture(1)) == want
        assert (await metrics(second))["chiasm_worker_encode_calls_total"] == encoded


async def test_a_reload_to_other_weights_is_admitted_anew_and_finds_nothing_of_the_old(
    worker_config: WorkerConfig, tmp_path: Path, folder: Folder, picture: Callable[..., bytes]
):
    config = worker_config.model_copy(update={"model_path": folder.path})
    async with sidecar(tmp_path) as pod, serving(config) as worker:
        await connected(worker)
        want = await answer(worker, picture(1))
        await kept(worker)
        for which in ("b", "a"):
            folder.hold(which)
            before = await metrics(worker)
            assert (await worker.client.post("/-/reload")).status_code == 200
            await connected(worker)
            assert pod.readiness.admission is not None
            assert pod.readiness.admission.identity == worker.state.identity_report()
            assert (await answer(worker, picture(1)) == want) is (which == "a")
            after = await metrics(worker)
            name = "chiasm_worker_tier_restored_tokens_total.media_kv"
            assert after[name] == before[name], "a's blocks are in the worker's own memory"


async def test_a_reload_to_an_unexpected_identity_makes_the_pod_not_ready(
    worker_config: WorkerConfig, tmp_path: Path, folder: Folder, picture: Callable[..., bytes]
):
    config = worker_config.model_copy(update={"model_path": folder.path})
    async with serving(config) as worker:
        field = "compute.weights.language"
        expected = str(worker.state.identity_report().fields[field])
        async with sidecar(tmp_path, **{field: expected}) as pod:
            await connected(worker)
            await answer(worker, picture(1))
            folder.hold("b")
            assert (await worker.client.post("/-/reload")).status_code == 200
            await until(lambda: pod.readiness.state.reason == "IdentityMismatch")
            assert field in pod.readiness.state.message
            assert (await metrics(worker))["chiasm_worker_tier_connected"] == 0
            folder.hold("a")
            assert (await worker.client.post("/-/reload")).status_code == 200
            await until(lambda: pod.readiness.state.ready)
            await connected(worker)


async def test_another_tenant_gets_nothing_of_it(
    worker_config: WorkerConfig, tmp_path: Path, picture: Callable[..., bytes]
):
    async with sidecar(tmp_path), serving(worker_config) as worker:
        await connected(worker)
        want = await answer(worker, picture(1))
        await kept(worker)
        assert await answer(worker, picture(1), scope=OTHERS) == want
        name = "chiasm_worker_tier_restored_tokens_total"
        values = await metrics(worker)
        assert sum(value for key, value in values.items() if key.startswith(name)) == 0


async def test_without_its_sidecar_a_worker_answers_and_later_finds_it_again(
    worker_config: WorkerConfig, tmp_path: Path, picture: Callable[..., bytes]
):
    async with serving(worker_config) as worker:
        want = await answer(worker, picture(1))
        for _ in range(2):
            async with sidecar(tmp_path):
                await connected(worker)
                assert await answer(worker, picture(1)) == want
            await until(lambda: worker.state.serving.service.engine.tier_link.staging is None)
            assert await answer(worker, picture(1)) == want
