"""What a request holds of its media is one copy, and no more than it needs."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from chiasm_contract.config import VisionConfig
from chiasm_contract.errors import InvariantError
from chiasm_contract.messages import MediaFiles
from chiasm_worker.equality import Conversation, Prepared, ask
from chiasm_worker.modality import request_media
from chiasm_worker.modality.shared_media import FileInputs, MediaInputs, ReadyInputs
from chiasm_worker.models.tiny.clips import write_clip, write_sound
from PIL import Image


def _png() -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(5).integers(0, 256, (70, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


PNG = _png()
KINDS = [
    ("qwen3-grouped", ask("?", [PNG])),
    ("onevision-qwen2", ask("?", [PNG])),
    ("onevision-qwen2", ask("?", [PNG, PNG])),
    ("mllama-grouped", ask("?", [PNG])),
    ("qwen2.5-grouped", ask("?", videos=[write_clip(1)])),
    ("qwen2-audio", ask("?", sounds=[write_sound(1)])),
]


@pytest.fixture
def num_decoded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many files were decoded in this test."""
    decoded: list[bytes] = []

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda data, *given: (decoded.append(data), original(data, *given))[1]

    for name in ("decode_image", "decode_video", "decode_audio"):
        monkeypatch.setattr(request_media, name, counted(getattr(request_media, name)))
    return lambda: len(decoded)


def as_bmp(png: bytes) -> bytes:
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).save(buffer, "BMP")
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["qwen3-grouped", "llava-clip-llama", "onevision-qwen2"])
def test_requests_that_run_together_hold_one_copy_of_a_picture(
    name: str, prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: what is shared ends with the preparing, and each request holds its own."""
    model, png = prepared(name), picture(1, 90, 70)
    _, (first,) = model.prompt(ask("What is this?", [png]))
    gc.collect()
    _, (again,) = model.prompt(ask("And what is that?", [as_bmp(png)]))
    assert again is first
    _, (other,) = model.prompt(ask("And that?", [picture(2, 90, 70)]))
    assert other is not first


def test_requests_of_other_scopes_share_no_copy_and_no_knowledge(
    prepared: Callable[[str], Prepared], num_decoded: Callable[[], int]
):
    """The fault: a tenant sees by the time to its first token that another one has its picture."""
    model, asked = prepared("qwen3-grouped"), ask("What is this?", [PNG])
    model = Prepared(model.model)
    files = MediaFiles((PNG,))

    def read(scope_fp: str) -> MediaInputs:
        return model._media.read(asked.media_parts, files, scope_fp)[1][0]

    one = read("a" * 64)
    before = num_decoded()
    other = read("b" * 64)
    assert (num_decoded(), type(other)) == (before + 1, ReadyInputs)
    assert other is not one
    assert other.item.identity == one.item.identity
    assert read("a" * 64) is one


def test_the_same_picture_at_several_details_is_one_copy(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    model = Prepared(prepared("qwen3-grouped").model, VisionConfig(low_detail_compression=16))
    png = picture(1, 120, 90)
    prompts = [model.prompt(ask("?", [png], detail=detail)) for detail in ("low", "high")]
    low, high = (prompt.spans[0].item for prompt, _ in prompts)
    assert low.num_tokens < high.num_tokens
    assert prompts[0][1][0] is prompts[1][1][0]


def test_what_nobody_holds_is_gone(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    model = prepared("qwen3-grouped")
    held = [model.prompt(ask("?", [picture(seed)])) for seed in range(3)]
    gc.collect()
    live = model._media._shared._live
    assert len(live) == 3
    del held[1:]
    gc.collect()
    assert len(live) == 1


@pytest.mark.parametrize(("name", "asked"), KINDS)
def test_a_file_that_was_read_before_is_not_even_decoded(
    name: str,
    asked: Conversation,
    prepared: Callable[[str], Prepared],
    num_decoded: Callable[[], int],
):
    """The fault: each turn of a conversation decodes and processes every file of the turns before,
    though all that it needs of them is cached."""
    model = Prepared(prepared(name).model)
    prompt, first = model.prompt(asked)
    decoded = num_decoded()
    assert decoded >= 1
    tensors = [each.tensors() for each in first]
    sizes = [each.num_bytes for each in first]
    del first
    gc.collect()
    again, later = model.prompt(asked)
    assert num_decoded() == decoded
    assert again.token_ids == prompt.token_ids
    assert again.media == prompt.media
    # What it holds until then is the file; what the encoder gets is what it would have got.
    files = (*asked.pictures, *asked.videos, *asked.sounds)
    for each, data, want, size in zip(later, files, tensors, sizes, strict=True):
        assert isinstance(each, FileInputs)
        assert each.num_bytes == len(data)
        made = each.tensors()
        assert made.keys() == want.keys()
        assert all(torch.equal(made[part], want[part]) for part in want)
        ready = model._media.ready(each)
        assert ready.num_bytes == size
    assert num_decoded() > decoded


def test_what_is_made_ahead_is_shared_by_those_who_come_later(
    prepared: Callable[[str], Prepared], num_decoded: Callable[[], int]
):
    model = Prepared(prepared("qwen3-grouped").model)
    model.prompt(ask("?", [PNG]))
    _, (early,) = model.prompt(ask("?", [PNG]))
    ready = model._media.ready(early)
    assert isinstance(ready, ReadyInputs)
    assert model._media.ready(early) is ready
    assert model._media.ready(ready) is ready
    _, (late,) = model.prompt(ask("?", [PNG]))
    assert late is ready
    assert num_decoded() == 2


def test_another_look_at_a_known_file_is_its_own(
    prepared: Callable[[str], Prepared], num_decoded: Callable[[], int]
):
    """Alone in its prompt a picture is cut into tiles; that it was read in company says nothing."""
    model = Prepared(prepared("onevision-qwen2").model)
    beside, _ = model.prompt(ask("?", [PNG, as_bmp(PNG)]))
    alone, _ = model.prompt(ask("?", [PNG]))
    assert alone.spans[0].item.num_tokens > beside.spans[0].item.num_tokens
    assert num_decoded() == 3
    fresh, _ = Prepared(model.model).prompt(ask("?", [PNG]))
    assert fresh.spans == alone.spans


def test_a_known_file_at_another_detail(
    prepared: Callable[[str], Prepared], num_decoded: Callable[[], int]
):
    model = Prepared(prepared("qwen3-grouped").model, VisionConfig(low_detail_compression=16))
    high, _ = model.prompt(ask("?", [PNG], detail="high"))
    low, _ = model.prompt(ask("?", [PNG], detail="low"))
    assert num_decoded() == 1
    assert low.spans[0].item.encoded == high.spans[0].item
    assert low.spans[0].item.ratio == 16


def test_a_file_that_shows_something_else_when_read_again_is_never_used(
    prepared: Callable[[str], Prepared],
    picture: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
):
    model = Prepared(prepared("qwen3-grouped").model)
    model.prompt(ask("?", [PNG]))
    _, (later,) = model.prompt(ask("?", [PNG]))
    original = request_media.decode_image
    monkeypatch.setattr(
        request_media, "decode_image", lambda _, *given: original(picture(3), *given)
    )
    with pytest.raises(InvariantError, match="read again"):
        later.tensors()
