"""What a request holds of its media is one copy, whatever other requests hold the same."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable

import pytest
from chiasm_contract.config import VisionConfig
from chiasm_worker.equality import Prepared, ask
from PIL import Image


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
    live = model._media._preparer._live
    assert len(live) == 3
    del held[1:]
    gc.collect()
    assert len(live) == 1
