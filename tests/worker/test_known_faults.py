"""What other engines got wrong about caches, lifetimes and counts, and what keeps us right.

The kinds of fault: KEY, two things under one name; LIFE, content that outlives or is missed by its
readers; COUNT, tokens and features that do not match; ABORT, work that goes on for nobody; DOS, a
small request that costs a lot.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, Reference, ask
from chiasm_worker.kvcache.prefix_cache import block_content, media_runs
from chiasm_worker.media_identity import MediaIdentity, MediaSpan
from chiasm_worker.request import SamplingParams
from PIL import Image

from tests.worker.sched.conftest import compute, record, request, scheduler

TESTS = Path(__file__).resolve().parent.parent
HERE = "worker/test_known_faults.py"
POOL = "worker/kvcache/test_block_pool.py"
PREFIX = "worker/kvcache/test_prefix_cache.py"
PROMPT = "worker/test_prompt.py"
IMAGE = "worker/modality/test_image.py"
CLIENTS = "sidecar/test_client_waits.py"
INTAKE = "sidecar/test_intake.py"

# Our test: the kinds and addresses (under github.com) of what happened elsewhere.
KNOWN: dict[tuple[str, str], tuple[str, ...]] = {
    (HERE, "test_key_another_picture_behind_the_same_words"): (
        "KEY vllm-project/vllm/issues/20261",
        "KEY sgl-project/sglang-omni/issues/258",
    ),
    (HERE, "test_key_the_place_in_a_picture_counts"): ("KEY vllm-project/vllm/pull/36708",),
    (POOL, "test_a_colliding_key_is_a_miss"): (
        "KEY sgl-project/sglang/issues/2151",
        "KEY LMCache/LMCache/issues/3301",
        "KEY openvinotoolkit/openvino.genai/issues/3722",
    ),
    (HERE, "test_key_and_count_shape_counts"): (
        "KEY sgl-project/sglang/issues/25462",
        "KEY sgl-project/sglang/pull/32404",
        "KEY ai-dynamo/dynamo/pull/8340",
        "KEY exo-explore/exo/issues/2151",
        "COUNT vllm-project/vllm/issues/18572",
    ),
    (HERE, "test_key_order_and_last_bytes_count"): ("KEY raullenchai/Rapid-MLX/pull/22",),
    ("worker/server/test_failures.py", "test_a_broken_engine_ends_requests_and_health"): (
        "KEY ROCm/ATOM/pull/1358",
    ),
    (INTAKE, "test_faults_name_their_field"): (
        "KEY vllm-project/vllm/issues/55547",
        "DOS vllm-project/vllm/pull/54632",
        "DOS vllm-project/vllm/issues/57719",
    ),
    (PREFIX, "test_another_fingerprint_shares_nothing"): (
        "LIFE vllm-project/vllm/issues/44910",
        "LIFE InternLM/lmdeploy/issues/4917",
    ),
    ("worker/sched/test_load.py", "every_hold_is_in_one_requests_books"): (
        "LIFE vllm-project/vllm/issues/31404",
    ),
    (HERE, "test_life_a_picture_outlives_preemption_of_its_first_reader"): (
        "LIFE vllm-project/vllm/issues/45658",
    ),
    (HERE, "test_life_nothing_grows_with_the_number_of_pictures"): (
        "LIFE hiyouga/EasyR1/pull/11002",
        "LIFE sgl-project/sglang/issues/8902",
    ),
    ("worker/server/test_answers.py", "test_pictures_of_all_requests_have_one_limit"): (
        "LIFE vllm-project/vllm/issues/35191",
    ),
    (HERE, "test_life_a_repeated_picture_is_held_until_its_last_place"): (
        "LIFE vllm-project/vllm/pull/23544",
    ),
    (HERE, "test_life_the_tightest_pool_still_gets_on"): (
        "LIFE vllm-project/vllm-ascend/issues/17195",
    ),
    (PROMPT, "test_a_typed_placeholder_is_text_and_moves_no_picture"): (
        "COUNT studio-dots-ai/dots.ocr/issues/126",
        "COUNT vllm-project/vllm/issues/57740",
    ),
    ("worker/test_equality.py", "test_alone_then_from_the_cache"): (
        "COUNT NVIDIA/TensorRT-LLM/issues/14125",
    ),
    ("worker/server/test_answers.py", "test_clients_that_leave_free_their_blocks"): (
        "ABORT vllm-project/vllm/issues/46283",
        "ABORT ai-dynamo/dynamo/pull/7489",
    ),
    (CLIENTS, "test_a_client_that_goes_away_ends_its_generation"): ("ABORT ROCm/ATOM/pull/1562",),
    (IMAGE, "test_sizes_are_refused_before_anything_is_decoded"): (
        "DOS sgl-project/sglang/issues/28587",
    ),
}


@pytest.mark.parametrize(("file", "name"), sorted(KNOWN))
def test_every_known_fault_has_its_test(file: str, name: str):
    assert f"def {name}(" in (TESTS / file).read_text()


@pytest.fixture
def model(prepared: Callable[[str], Prepared]) -> Prepared:
    return prepared("qwen3-grouped")


@pytest.fixture
def plain(reference: Callable[[str], Reference]) -> Reference:
    return reference("qwen3-grouped")


def solid(width: int, height: int, colour: tuple[int, int, int] = (200, 30, 60)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "PNG")
    return buffer.getvalue()


def all_as_the_plain_model(
    model: Prepared, plain: Reference, engine: Engine, asked: Sequence[Conversation]
) -> None:
    """One after the other through one warm engine, twice."""
    want = [plain.generate(each, 8) for each in asked]
    for _ in range(2):
        assert [model.generate(engine, [each], 8)[0] for each in asked] == want


def test_key_another_picture_behind_the_same_words(
    model: Prepared, plain: Reference, picture: Callable[..., bytes]
):
    pictures = [picture(seed, 64, 64) for seed in range(4)]
    asked = [ask("Which way through this maze?", [each]) for each in pictures]
    all_as_the_plain_model(model, plain, model.engine(), asked)


def test_key_the_place_in_a_picture_counts():
    span = MediaSpan(MediaIdentity("image", b"d" * 32, (8, 8), 64), 0, b"p" * 32)
    contents = [
        block_content(b"parent", [9] * 16, media_runs((span,), start, start + 16))
        for start in (0, 16, 32)
    ]
    assert len({content.key for content in contents}) == 3


def test_key_and_count_shape_counts(model: Prepared, plain: Reference):
    """Equal bytes of features, other grids and other numbers of tokens."""
    sizes = [(64, 96), (96, 64), (64, 64), (128, 48), (48, 128)]
    asked = [ask("What is this?", [solid(*size)]) for size in sizes]
    prompts = [model.prompt(each)[0] for each in asked]
    assert len({prompt.spans[0].item for prompt in prompts}) == len(sizes)
    for prompt, conversation in zip(prompts, asked, strict=True):
        assert list(prompt.token_ids) == plain.inputs(conversation)["input_ids"][0].tolist()
    all_as_the_plain_model(model, plain, model.engine(), asked)


def test_key_order_and_last_bytes_count(
    model: Prepared, plain: Reference, picture: Callable[..., bytes]
):
    a, b = picture(1, 200, 200), picture(2, 64, 64)
    pixels = np.asarray(Image.open(io.BytesIO(a))).copy()
    pixels[-30:, -30:] = 0  # beyond the first 64 KiB of 120,000 bytes
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    shown = ([a, b], [b, a], [buffer.getvalue(), b])
    asked = [ask("Compare them.", each) for each in shown]
    all_as_the_plain_model(model, plain, model.engine(), asked)


def test_life_a_picture_outlives_preemption_of_its_first_reader():
    """Its entry is found or encoded again; no chunk ever runs without it."""
    sched = scheduler(13, budget=5)
    first = request("first", 8, 24, first=50)
    second = request("second", 14, 8, ((1, 12, 1),))
    third = request("third", 14, 8, ((1, 12, 1),), first=90)
    for each in (first, second, third):
        sched.add(each)
    while sched.has_requests:
        batch = sched.schedule()
        for chunk in batch.chunks:
            read = chunk.request.media_in(chunk.start, chunk.end)
            assert set(read) <= set(chunk.request.media)
        record(sched, batch)
        sched.check()
    assert second.num_preemptions + third.num_preemptions > 0
    assert [len(r.output_token_ids) for r in (first, second, third)] == [24, 8, 8]


def test_life_nothing_grows_with_the_number_of_pictures(
    model: Prepared, picture: Callable[..., bytes]
):
    engine = model.engine(kv_cache_bytes=2**20, max_model_len=512)
    for seed in range(60):
        model.generate(engine, [ask("?", [picture(seed, 120, 120)])], 2)
        findable = sum(engine.pool.num_findable.values())
        assert engine.pool.num_free + findable == engine.pool.num_blocks
    assert sum(engine.pool.num_evictions.values()) > engine.pool.num_blocks
    assert len(engine.pool._by_key) == findable
    assert len(engine.pool._queue._heap) <= 2 * engine.pool.num_blocks + 64
    assert not engine._live


def test_life_a_repeated_picture_is_held_until_its_last_place(
    model: Prepared, plain: Reference, picture: Callable[..., bytes]
):
    a, b = picture(1, 64, 64), picture(2, 64, 64)
    asked = ask("Which of these are the same?", [a, b, a, a])
    want = plain.generate(asked, 8)
    for chunk in (3, 16, 512):
        engine = model.engine(max_num_batched_tokens=chunk)
        request = model.add(engine, "r", asked, SamplingParams(8))
        while engine.has_requests:
            engine.step()
            engine.scheduler.check()
        assert list(request.output_token_ids) == want
        assert engine.runner.encoding.num_items == 2


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 64])
def test_life_the_tightest_pool_still_gets_on(budget: int):
    """Exactly the blocks that `fits` asks for: no step may wait for room that only it can make."""
    requests = [
        request(f"r{i}", 15, 5, ((1, 5, 2 * i), (7, 7, 2 * i + 1)), first=50 * i) for i in range(3)
    ]
    num_blocks = next(n for n in range(1, 20) if scheduler(n).fits(requests[0]))
    sched = scheduler(num_blocks, budget=budget, encoder_budget=6)
    for each in requests:
        sched.add(each)
    num_steps = 0
    while sched.has_requests:
        compute(sched)
        sched.check()
        num_steps += 1
        assert num_steps < 1000
    assert [each.num_output_tokens for each in requests] == [5, 5, 5]
