"""Greedy answers equal transformers' `generate`, whatever shares the batch or the cache.

Every tiny model of every registered family goes through the same stories; a family without a tiny
model fails the first test.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chiasm_contract.messages import ChatMessage, ImagePart, TextPart
from chiasm_worker.equality import Conversation, Prepared, Reference, ask
from chiasm_worker.models.registry import FAMILIES
from chiasm_worker.models.tiny import TINY_MODELS

MAX_TOKENS = 14
NAMES = [tiny.name for tiny in TINY_MODELS]
ONE_PER_FAMILY = ["qwen3-grouped", "qwen2.5-window", "qwen2-grouped", "llava-clip-mistral-window"]


@pytest.fixture(scope="module")
def conversations() -> list[Conversation]:
    import io

    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(7)

    def picture(width: int, height: int) -> bytes:
        buffer = io.BytesIO()
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, "PNG")
        return buffer.getvalue()

    a, b = picture(90, 70), picture(60, 120)
    turns = (
        ChatMessage(role="system", content=(TextPart(text="You look at shelves."),)),
        ChatMessage(role="user", content=(ImagePart(index=0), TextPart(text="What is this?"))),
        ChatMessage(role="assistant", content=(TextPart(text="A red tin."),)),
        ChatMessage(role="user", content=(TextPart(text="And this? "), ImagePart(index=1))),
    )
    return [
        ask("What stands left of the tin? Größe 5€", [a]),
        ask("How are you?"),
        Conversation(turns, (a, b)),
        ask("Which of these is larger, and which has more colours in it than the other?", [b, a]),
    ]


@pytest.fixture(scope="module")
def expected(
    reference: Callable[[str], Reference], conversations: list[Conversation]
) -> Callable[[str], list[list[int]]]:
    answers: dict[str, list[list[int]]] = {}

    def answer(name: str) -> list[list[int]]:
        if name not in answers:
            model = reference(name)
            answers[name] = [model.generate(c, MAX_TOKENS) for c in conversations]
        return answers[name]

    return answer


def test_every_family_has_a_tiny_model():
    assert {family.name for family in FAMILIES} == {tiny.family for tiny in TINY_MODELS}


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_transformers_own(
    name: str,
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    conversations: list[Conversation],
):
    for conversation in conversations:
        prompt, _ = prepared(name).prompt(conversation)
        assert (
            list(prompt.token_ids) == reference(name).inputs(conversation)["input_ids"][0].tolist()
        )


@pytest.mark.parametrize("name", NAMES)
def test_alone_then_from_the_cache(
    name: str,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: list[Conversation],
):
    engine = prepared(name).engine()
    for conversation, want in zip(conversations, expected(name), strict=True):
        for _ in ("cold", "from the cache"):
            assert prepared(name).generate(engine, [conversation], MAX_TOKENS) == [want]
    assert engine.scheduler.counters.prefix_hit_tokens > 0
    # Pictures a and b, both in three conversations.
    assert engine.runner.num_encode_calls == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps_between", [0, 3])
def test_in_a_mixed_batch(
    name: str,
    steps_between: int,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: list[Conversation],
):
    engine = prepared(name).engine()
    seen = prepared(name).generate(engine, conversations, MAX_TOKENS, steps_between)
    assert seen == expected(name)
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("chunk", [1, 5, 16, 23])
def test_with_any_chunk_size(
    name: str,
    chunk: int,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: list[Conversation],
):
    engine = prepared(name).engine(max_num_batched_tokens=chunk)
    assert prepared(name).generate(engine, conversations, MAX_TOKENS) == expected(name)


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("block_size", [8, 32])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_when_blocks_run_out(
    name: str,
    block_size: int,
    prefix_caching: bool,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: list[Conversation],
):
    limits = {"block_size": block_size, "prefix_caching": prefix_caching}
    roomy = prepared(name).engine(**limits)
    record = roomy.spec.record_bytes
    prompts = [prepared(name).prompt(c)[0] for c in conversations]
    longest = max(len(prompt.token_ids) for prompt in prompts) + MAX_TOKENS
    largest = max(roomy.media_cache.num_blocks(s.item) for p in prompts for s in p.spans)
    fit = roomy.spec.blocks_for_tokens(longest) + largest + 1
    engine = prepared(name).engine(
        **limits, kv_cache_bytes=max(2**20, fit * record), max_model_len=longest
    )
    # The contract's smallest budget may still be too roomy: take blocks away until it is tight.
    held = engine.pool.allocate(max(0, engine.pool.num_blocks - fit))
    assert held is not None
    assert prepared(name).generate(engine, conversations * 2, MAX_TOKENS) == expected(name) * 2
    assert engine.scheduler.counters.num_preemptions > 0
    engine.pool.release(held)
    assert engine.pool.num_used == 0
