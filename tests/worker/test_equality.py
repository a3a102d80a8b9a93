"""Greedy answers equal transformers' `generate`, whatever shares the batch or the cache.

Every tiny model of every registered family goes through the same stories; a family without a tiny
model fails the first test.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.messages import AudioPart, ChatMessage, ImagePart, TextPart, VideoPart
from chiasm_worker.equality import ROOT, Conversation, Prepared, Reference, ask
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain, cross_root, find_prefix
from chiasm_worker.models.mask import MaskRule
from chiasm_worker.models.registry import FAMILIES
from chiasm_worker.models.tiny import TINY_MODELS
from chiasm_worker.models.tiny.clips import write_clip, write_sound
from chiasm_worker.request import SamplingParams
from PIL import Image

# transformers' PaliGemma processor turns tensors into numpy's in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

MAX_TOKENS = 14
NAMES = [tiny.name for tiny in TINY_MODELS]
# The last shape of each family is its hardest.
ONE_PER_FAMILY = [*{tiny.family: tiny.name for tiny in TINY_MODELS}.values()]


def _picture(seed: int, width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


A, B = _picture(7, 90, 70), _picture(8, 60, 120)
TURNS = (
    ChatMessage(role="system", content=(TextPart(text="You look at shelves."),)),
    ChatMessage(role="user", content=(ImagePart(index=0), TextPart(text="What is this?"))),
    ChatMessage(role="assistant", content=(TextPart(text="A red tin."),)),
    ChatMessage(role="user", content=(TextPart(text="And this? "), ImagePart(index=1))),
)
PICTURES = [
    ask("What stands left of the tin? Größe 5€", [A]),
    Conversation(TURNS, (A, B)),
    ask("Which of these is larger, and which has more colours in it than the other?", [B, A]),
]
# Both give four frames: transformers' OneVision takes no two videos of different lengths.
SLOW, FAST = write_clip(1, 20, 10), write_clip(2, 53, Fraction(24000, 1001), (64, 96))
SCENE = ChatMessage(
    role="user",
    content=(
        VideoPart(index=1),
        TextPart(text="then "),
        ImagePart(index=0),
        VideoPart(index=0),
        TextPart(text="?"),
    ),
)
VIDEOS = [ask("What moves?", videos=[SLOW]), Conversation((SCENE,), (A,), (SLOW, FAST))]
FAMILY = {tiny.name: f for tiny in TINY_MODELS for f in FAMILIES if f.name == tiny.family}


LONG, SHORT = write_sound(1, 1.0), write_sound(2, 0.37)
HEARD = ChatMessage(
    role="user", content=(AudioPart(index=1), TextPart(text="and "), AudioPart(index=0))
)
SOUNDS = [
    ask("What do you hear?", sounds=[LONG]),
    Conversation((HEARD,), sounds=(LONG, SHORT)),
    ask("And this?", sounds=[SHORT]),
]
TEXT = [ask("How are you?"), ask("How are you, and what do you do at this hour? Größe 5€")]
BY_MODALITY = {"image": PICTURES, "video": VIDEOS, "audio": SOUNDS}


@pytest.fixture(scope="module")
def conversations() -> Callable[[str], list[Conversation]]:
    """Name of a tiny model -> conversations with all that its family takes."""

    def those_of(name: str) -> list[Conversation]:
        with_media = [c for kind in FAMILY[name].modalities for c in BY_MODALITY[kind]]
        return with_media + ([] if FAMILY[name].needs_media else TEXT)

    return those_of


@pytest.fixture(scope="module")
def expected(
    reference: Callable[[str], Reference], conversations: Callable[[str], list[Conversation]]
) -> Callable[[str], list[list[int]]]:
    answers: dict[str, list[list[int]]] = {}

    def answer(name: str) -> list[list[int]]:
        if name not in answers:
            model = reference(name)
            answers[name] = [model.generate(c, MAX_TOKENS) for c in conversations(name)]
        return answers[name]

    return answer


def test_every_family_has_a_tiny_model():
    assert {family.name for family in FAMILIES} == {tiny.family for tiny in TINY_MODELS}


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_transformers_own(
    name: str,
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    conversations: Callable[[str], list[Conversation]],
):
    for conversation in conversations(name):
        prompt, _ = prepared(name).prompt(conversation)
        assert (
            list(prompt.token_ids) == reference(name).inputs(conversation)["input_ids"][0].tolist()
        )


@pytest.mark.parametrize("name", NAMES)
def test_alone_then_from_the_cache(
    name: str,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: Callable[[str], list[Conversation]],
):
    engine = prepared(name).engine()
    for conversation, want in zip(conversations(name), expected(name), strict=True):
        for _ in ("cold", "from the cache"):
            assert prepared(name).generate(engine, [conversation], MAX_TOKENS) == [want]
    # A prompt whose tokens all see one another is computed anew: a hit would end inside it.
    reads_at_once = prepared(name).model.decoder.spec.mask is MaskRule.PROMPT
    assert (engine.scheduler.counters.prefix_hit_tokens > 0) is not reads_at_once
    shown = {span.item for c in conversations(name) for span in prepared(name).prompt(c)[0].media}
    assert engine.runner.encoding.num_items == len(shown)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps_between", [0, 3])
def test_in_a_mixed_batch(
    name: str,
    steps_between: int,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: Callable[[str], list[Conversation]],
):
    engine = prepared(name).engine()
    seen = prepared(name).generate(engine, conversations(name), MAX_TOKENS, steps_between)
    assert seen == expected(name)
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("chunk", [1, 5, 16, 23])
def test_with_any_chunk_size(
    name: str,
    chunk: int,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: Callable[[str], list[Conversation]],
):
    """The faults: each chunk of a picture starts at the encoder's first row, or loses the features
    of deeper levels; tokens that see one another are parted."""
    engine = prepared(name).engine(max_num_batched_tokens=chunk)
    assert prepared(name).generate(engine, conversations(name), MAX_TOKENS) == expected(name)


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("block_size", [8, 32])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_when_blocks_run_out(
    name: str,
    block_size: int,
    prefix_caching: bool,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: Callable[[str], list[Conversation]],
):
    limits = {"block_size": block_size, "prefix_caching": prefix_caching}
    roomy = prepared(name).engine(**limits)
    record = roomy.spec.record_bytes
    prompts = [prepared(name).prompt(c)[0] for c in conversations(name)]
    longest = max(len(prompt.token_ids) for prompt in prompts) + MAX_TOKENS
    largest = max(roomy.pool.num_blocks - roomy.scheduler.max_blocks(p) for p in prompts)
    fit = -(-longest // roomy.spec.block_size) + largest + 1
    engine = prepared(name).engine(
        **limits, kv_cache_bytes=max(2**20, fit * record), max_model_len=longest
    )
    # The contract's smallest budget may still be too roomy: take blocks away until it is tight.
    held = engine.pool.allocate(max(0, engine.pool.num_blocks - fit))
    assert held is not None
    assert (
        prepared(name).generate(engine, conversations(name) * 2, MAX_TOKENS) == expected(name) * 2
    )
    # What needs all its pictures at once keeps others from being admitted in the first place.
    at_once = engine.model.decoder.spec.mask in (MaskRule.CROSS, MaskRule.PROMPT)
    assert at_once or engine.scheduler.counters.num_preemptions > 0
    engine.pool.release(held)
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_preempted_at_random_moments(
    name: str,
    prefix_caching: bool,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: Callable[[str], list[Conversation]],
):
    """The fault: a resumed request goes on with half a picture, or without what it had seen."""
    rng = random.Random(name)
    engine = prepared(name).engine(
        max_num_batched_tokens=40, block_size=8, prefix_caching=prefix_caching
    )
    params = SamplingParams(max_tokens=MAX_TOKENS)
    requests = [
        prepared(name).add(engine, f"c{i}", conversation, params)
        for i, conversation in enumerate(conversations(name))
    ]
    while engine.has_requests:
        engine.step()
        running = list(engine.scheduler._running)
        if running and rng.random() < 0.5:
            engine.scheduler._preempt(rng.choice(running))
        engine.pool.check()
    assert engine.scheduler.counters.num_preemptions > 0
    assert [list(request.output_token_ids) for request in requests] == expected(name)
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_from_a_cache_that_holds_a_part(
    name: str,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str], list[list[int]]],
    conversations: Callable[[str], list[Conversation]],
):
    """The fault: what follows a hit, inside a picture too, is computed without what was found."""
    size, talk, want = 8, conversations(name)[0], expected(name)[0][:6]
    prompt, _ = prepared(name).prompt(talk)
    scope = CacheScope.within(ROOT, SHARED_SCOPE_FP)
    root = cross_root(scope.root, prompt.cross)
    chain = ContentChain(root, size, prompt.spans, prompt.bidirectional)
    for num_blocks in range((len(prompt.token_ids) - 1) // size + 1):
        engine = prepared(name).engine(block_size=size)
        prepared(name).generate(engine, [talk], 1)
        # What the cache no longer holds is computed again from there on.
        engine.pool.uncommit(find_prefix(engine.pool, chain, prompt.token_ids)[num_blocks:])
        assert prepared(name).generate(engine, [talk], 6) == [want]
        if not prompt.bidirectional:
            assert engine.scheduler.counters.prefix_hit_tokens == num_blocks * size
