from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from chiasm_contract.config import ImageLimits, VideoLimits
from chiasm_worker.equality import Prepared
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import MediaProcessor
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
    item, tensors = MediaProcessor(model).image(image)
    assert (item.identity.digest, item.identity.modality) == (image.digest, "image")
    assert (item.identity.grid, item.identity.num_tokens) == (grid, num_tokens)
    with torch.inference_mode():
        features = model.encoder.encode(tensors)
    width = model.decoder.spec.hidden_size * (1 + model.num_deepstack)
    assert features.shape == (num_tokens, width)


def test_a_picture_in_company_is_another_item_where_the_model_sees_it_so(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    processor = MediaProcessor(prepared("onevision-qwen2").model)
    image = decode_image(picture(1, 90, 70), ImageLimits())
    alone, beside, among = (processor.image(image, n)[0].identity for n in (1, 2, 3))
    assert alone.digest == beside.digest
    # One tile without newlines, but for the last; alone the tiles come beside the whole.
    assert beside.num_tokens == 16 + 1 < alone.num_tokens
    assert among == beside


def test_a_video_says_what_the_encoder_sees(prepared: Callable[[str], Prepared]):
    model = prepared("qwen2.5-grouped").model
    video = decode_video(write_clip(1), VideoLimits(), lambda _: [0, 5, 10, 15])
    item, tensors = MediaProcessor(model).video(video)
    assert (item.identity.digest, item.identity.modality) == (video.digest, "video")
    # Two pairs of frames, a pair each second.
    assert (item.identity.grid[0], item.seconds_per_step) == (2, 1.0)
    with torch.inference_mode():
        features = model.encoder.encode(tensors)
    assert features.shape == (item.identity.num_tokens, model.decoder.spec.hidden_size)
