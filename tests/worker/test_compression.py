"""Answers about compressed pictures equal transformers' own, whatever the batch, chunk or cache.

The reference is transformers' model with compressed features (compressed_reference.py). A model
whose tokens form no plain grid is refused instead; every tiny model goes through one or the other,
and which of them through the other is pinned here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chiasm_contract.config import COMPRESSION_RATIOS, Detail, VisionConfig
from chiasm_contract.errors import InvalidRequest
from chiasm_contract.messages import ChatMessage, ImagePart, TextPart
from chiasm_worker.equality import Conversation, Prepared, Reference, ask
from chiasm_worker.models.registry import FAMILIES
from chiasm_worker.models.tiny import TINY_MODELS

from tests.worker.compressed_reference import CompressedReference, Reduction

MAX_TOKENS = 10
SEEING = {family.name for family in FAMILIES if "image" in family.modalities}
NAMES = [tiny.name for tiny in TINY_MODELS if tiny.family in SEEING]
# Tiles, separators, a class token among the patches.
REFUSED = {
    "llava-next-mistral", "llava-next-siglip-qwen2", "onevision-qwen2", "onevision-many-tiles",
    "pixtral", "mistral3", "mistral3-window", "internvl-qwen2", "internvl-qwen3-norm", "idefics3",
    "smolvlm", "smolvlm-tied", "mllama-grouped", "mllama-llama3-rope",
}  # fmt: skip
COMPRESSED = [name for name in NAMES if name not in REFUSED]
ONE_PER_SCHEME = [
    "qwen3-grouped", "qwen2.5-window", "llava-clip-mistral-window", "gemma3-narrow-window",
]  # fmt: skip
VISION = VisionConfig(compression=4, low_detail_compression=16)
# transformers' PaliGemma processor turns tensors into numpy's in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
Story = tuple[Conversation, tuple[Detail, ...]]


@pytest.fixture
def pictures(picture: Callable[..., bytes]) -> tuple[bytes, bytes]:
    """Two whose grids no window divides."""
    return picture(11, 200, 140), picture(12, 90, 170)


@pytest.fixture
def stories(pictures: tuple[bytes, bytes]) -> list[Story]:
    """Conversations with the detail of each picture in them; some begin alike on purpose."""
    a, b = pictures
    both = (
        ImagePart(index=0, detail="low"), TextPart(text="and"), ImagePart(index=0, detail="high"),
        TextPart(text="are they one?"),
    )  # fmt: skip
    return [
        (ask("What is it?", [a], detail="low"), ("low",)),
        (ask("What is it?", [a], detail="high"), ("high",)),
        (ask("What is it?", [a]), ("auto",)),
        (ask("Which is larger?", [b, a]), ("auto", "auto")),
        (Conversation((ChatMessage(role="user", content=both),), (a,)), ("low", "high")),
    ]


@pytest.fixture(scope="session")
def expected(reference: Callable[[str], Reference]) -> Callable[[str, Sequence[Story]], Any]:
    """What the reference says to stories; each model is asked once."""
    known: dict[str, list[list[int]]] = {}

    def answers(name: str, stories: Sequence[Story]) -> list[list[int]]:
        if name not in known:
            model = CompressedReference(reference(name))
            known[name] = [
                model.generate(asked, [Reduction(VISION.ratio(d)) for d in details], MAX_TOKENS)
                for asked, details in stories
            ]
        return known[name]

    return answers


@pytest.mark.parametrize(
    ("name", "method"),
    [*((name, "salient") for name in COMPRESSED), *((name, "mean") for name in ONE_PER_SCHEME)],
)
def test_every_ratio(
    name: str,
    method: Any,
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    pictures: tuple[bytes, bytes],
):
    asked = ask("What is it?", pictures)
    for ratio in COMPRESSION_RATIOS:
        vision = VisionConfig(compression=ratio, compression_method=method)
        model = Prepared(prepared(name).model, vision)
        how = [Reduction(ratio, method)] * 2
        want = CompressedReference(reference(name)).generate(asked, how, MAX_TOKENS)
        engine = model.engine()
        for _ in ("cold", "from the cache"):
            assert model.generate(engine, [asked], MAX_TOKENS) == [want]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_model_without_a_grid_of_tokens_is_refused(
    name: str, prepared: Callable[[str], Prepared], stories: list[Story]
):
    with pytest.raises(ValueError, match=r"model\.vision\.compression is 4"):
        Prepared(prepared(name).model, VISION)
    with pytest.raises(InvalidRequest, match=r"compression of 8.*only 1 is allowed.*'high'"):
        prepared(name).prompt(stories[0][0])


@pytest.mark.parametrize("name", COMPRESSED)
def test_one_picture_in_several_details(
    name: str,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str, Sequence[Story]], list[list[int]]],
    stories: list[Story],
):
    model = Prepared(prepared(name).model, VISION)
    conversations = [asked for asked, _ in stories]
    engine = model.engine()
    for _ in ("cold and together", "from the cache"):
        assert model.generate(engine, conversations, MAX_TOKENS) == expected(name, stories)
    assert engine.runner.encoding.num_items == 2  # two pictures, whatever their details
    assert engine.pool.num_used == 0


@pytest.mark.parametrize("name", ONE_PER_SCHEME)
@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_with_any_chunk_size(
    name: str,
    chunk: int,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str, Sequence[Story]], list[list[int]]],
    stories: list[Story],
):
    model = Prepared(prepared(name).model, VISION)
    engine = model.engine(max_num_batched_tokens=chunk)
    conversations = [asked for asked, _ in stories]
    assert model.generate(engine, conversations, MAX_TOKENS, 2) == expected(name, stories)


@pytest.mark.parametrize("name", ONE_PER_SCHEME)
def test_when_blocks_run_out(
    name: str,
    prepared: Callable[[str], Prepared],
    expected: Callable[[str, Sequence[Story]], list[list[int]]],
    stories: list[Story],
):
    model = Prepared(prepared(name).model, VISION)
    conversations = [asked for asked, _ in stories]
    prompts = [model.prompt(asked)[0] for asked in conversations]
    longest = max(len(prompt.token_ids) for prompt in prompts) + MAX_TOKENS
    engine = model.engine(max_model_len=longest)
    largest = max(engine.media_cache.num_blocks(s.item) for p in prompts for s in p.spans)
    fit = -(-longest // engine.spec.block_size) + largest + 1
    held = engine.pool.allocate(engine.pool.num_blocks - fit)
    assert held is not None
    assert model.generate(engine, conversations * 2, MAX_TOKENS) == expected(name, stories) * 2
    assert engine.scheduler.counters.num_preemptions > 0


def test_details_never_share_blocks_of_keys_and_values(
    prepared: Callable[[str], Prepared], pictures: tuple[bytes, bytes]
):
    """The same tokens at the same places, but of another method: nothing is found."""
    a, _ = pictures
    model = prepared("qwen3-grouped").model
    engine = Prepared(model).engine()
    for method in ("salient", "mean"):
        same_size = Prepared(model, VisionConfig(compression=4, compression_method=method))
        same_size.generate(engine, [ask("What is it?", [a])], 2)
    assert engine.scheduler.counters.prefix_hit_tokens == 0
    assert engine.runner.encoding.num_items == 1


@pytest.mark.parametrize("name", ["qwen3-grouped", "llava-clip-llama"])
def test_blocks_shrink_by_the_ratio(
    name: str, prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    big = picture(5, 224, 224)
    counts = {}
    for ratio in COMPRESSION_RATIOS:
        prompt, _ = Prepared(prepared(name).model, VisionConfig(compression=ratio)).prompt(
            ask("What is it?", [big])
        )
        counts[ratio] = prompt.num_media_tokens["image"]
        assert prompt.num_uncompressed_image_tokens == counts[1]
        assert prompt.image_compression == (ratio,)
        assert prompt.image_tokens == {ratio: counts[ratio]}
    assert len(prompt.spans) == 1
    assert [counts[1] / counts[ratio] for ratio in (4, 8, 16)] == pytest.approx(
        {"qwen3-grouped": [49 / 16, 49 / 8, 49 / 4], "llava-clip-llama": [4, 8, 16]}[name]
    )


def test_a_model_whose_tokens_form_no_grid_is_refused_by_name(
    prepared: Callable[[str], Prepared],
    pictures: tuple[bytes, bytes],
    monkeypatch: pytest.MonkeyPatch,
):
    """CLIP's class token kept among the patches, as `full` does it."""
    model = prepared("llava-clip-llama").model
    monkeypatch.setattr(model.config, "vision_feature_select_strategy", "full")
    with pytest.raises(ValueError, match=r"model\.vision\.compression is 4; the vision tokens"):
        Prepared(model, VisionConfig(compression=4))
    parts = (ImagePart(index=0, detail="high"), ImagePart(index=1, detail="low"))
    asked = Conversation((ChatMessage(role="user", content=parts),), pictures)
    with pytest.raises(InvalidRequest, match=r"Picture 2 asks for detail 'low'.*llava") as caught:
        Prepared(model).prompt(asked)
    assert caught.value.param == "images[1].detail"
