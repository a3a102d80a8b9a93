from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from chiasm_contract.config import ImageLimits, VideoLimits
from chiasm_worker.equality import Prepared
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import MediaPreparer
from chiasm_worker.modality.video import decode_video
from chiasm_worker.models.tiny.clips import write_clip


@pytest.mark.parametrize(
    ("name", "grid", "num_tokens"),
    [("qwen3-grouped", (1, 4, 8), 8), ("qwen2.5-grouped", (1, 4, 10), 10),
     ("llava-clip-llama", (4, 4), 16), ("llava-siglip-qwen2", (4, 4), 16)],
)  # fmt: skip
def test_identity_says_what_the_encoder_sees(
    name: str,
    grid: tuple[int, ...],
    num_tokens: int,
    prepared: Callable[[str], Prepared],
    picture: Callable[..., bytes],
):
    model = prepared(name).model
    image = decode_image(picture(1, 130, 70), ImageLimits())
    inputs = MediaPreparer(model).image(image)
    item = inputs.item
    assert (item.identity.digest, item.identity.modality) == (image.digest, "image")
    assert (item.identity.grid, item.identity.num_tokens) == (grid, num_tokens)
    with torch.inference_mode():
        features = model.encoder.encode(inputs.tensors())
    width = model.decoder.spec.hidden_size * (1 + model.num_deepstack)
    assert features.shape == (num_tokens, width)


def test_requests_of_other_scopes_share_no_copy(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: a tenant sees by the time to its first token that another one has its picture."""
    preparer = MediaPreparer(prepared("qwen3-grouped").model)
    image = decode_image(picture(1), ImageLimits())
    one, other = preparer.image(image, 1, "a" * 64), preparer.image(image, 1, "b" * 64)
    assert one is not other
    assert one.item.identity == other.item.identity
    assert preparer.image(image, 1, "a" * 64) is one


def test_a_picture_in_company_is_another_item_where_the_model_sees_it_so(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    preparer = MediaPreparer(prepared("onevision-qwen2").model)
    image = decode_image(picture(1, 90, 70), ImageLimits())
    alone, beside = preparer.image(image, 1), preparer.image(image, 2)
    assert alone.item.identity.digest == beside.item.identity.digest
    assert alone.item.identity != beside.item.identity
    # One tile without newlines, but for the last; alone the tiles come beside the whole.
    assert beside.item.identity.num_tokens == 16 + 1 < alone.item.identity.num_tokens
    assert preparer.image(image, 3) is beside


def test_a_video_says_what_the_encoder_sees(prepared: Callable[[str], Prepared]):
    model = prepared("qwen2.5-grouped").model
    video = decode_video(write_clip(1), VideoLimits(), lambda _: [0, 5, 10, 15])
    inputs = MediaPreparer(model).video(video)
    item = inputs.item
    assert (item.identity.digest, item.identity.modality) == (video.digest, "video")
    # Two pairs of frames, a pair each second.
    assert (item.identity.grid[0], item.seconds_per_step) == (2, 1.0)
    with torch.inference_mode():
        features = model.encoder.encode(inputs.tensors())
    assert features.shape == (item.identity.num_tokens, model.decoder.spec.hidden_size)
