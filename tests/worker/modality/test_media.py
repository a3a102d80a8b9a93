from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from chiasm_contract.config import AudioLimits, ImageLimits, VideoLimits
from chiasm_worker.equality import Prepared
from chiasm_worker.modality.audio import SoundForm, decode_audio
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import MediaProcessor
from chiasm_worker.modality.video import decode_video
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny.clips import write_clip, write_sound


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
        (features,) = model.encoder.encode_batch([tensors]).features
    width = model.decoder.spec.hidden_size * (1 + model.num_deepstack)
    assert features.shape == (num_tokens, width)


@pytest.mark.parametrize(
    "name",
    ["qwen3-grouped", "llava-clip-llama", "onevision-qwen2", "smolvlm", "mllama-grouped"],
)
@pytest.mark.parametrize("num_images", [1, 2])
def test_pixels_are_held_in_the_models_type(
    name: str, num_images: int, tiny_folder: Callable[[str], Path], picture: Callable[..., bytes]
):
    """The fault: twice the memory for digits that every encoder drops, or for what it never reads.

    Dropping them earlier changes no feature.
    """
    model = load_model(tiny_folder(name), torch.bfloat16, torch.device("cpu"))
    image = decode_image(picture(1, 90, 70), ImageLimits())
    _, whole = MediaProcessor(replace(model, dtype=torch.float32)).image(image, num_images)
    _, held = MediaProcessor(model).image(image, num_images)
    floating = {n: tensor for n, tensor in held.items() if tensor.is_floating_point()}
    assert "pixel_values" in floating
    assert {tensor.dtype for tensor in floating.values()} == {torch.bfloat16}
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in held.values())
    assert whole["pixel_values"].dtype == torch.float32
    with torch.inference_mode():
        (rounded,), (late,) = (model.encoder.encode_batch([x]).features for x in (held, whole))
    assert torch.equal(rounded, late)


def test_sound_is_held_in_the_models_type(tiny_folder: Callable[[str], Path]):
    model = load_model(tiny_folder("qwen2-audio"), torch.bfloat16, torch.device("cpu"))
    processor = model.processor.feature_extractor
    sound = decode_audio(write_sound(1), AudioLimits(), SoundForm.of(processor))
    _, whole = MediaProcessor(replace(model, dtype=torch.float32)).audio(sound)
    _, held = MediaProcessor(model).audio(sound)
    assert held["input_features"].dtype == torch.bfloat16
    with torch.inference_mode():
        (rounded,), (late,) = (model.encoder.encode_batch([x]).features for x in (held, whole))
    assert torch.equal(rounded, late)


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
        (features,) = model.encoder.encode_batch([tensors]).features
    assert features.shape == (item.identity.num_tokens, model.decoder.spec.hidden_size)
