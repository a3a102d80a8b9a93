from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from chiasm_contract.config import ImageLimits
from chiasm_worker.equality import Prepared
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import ImagePreparer


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
    item = ImagePreparer(model).prepare(image)
    assert (item.identity.digest, item.identity.modality) == (image.digest, "image")
    assert (item.identity.grid, item.identity.num_tokens) == (grid, num_tokens)
    with torch.inference_mode():
        features = model.encoder.encode(item.inputs)
    width = model.decoder.spec.hidden_size * (1 + model.num_deepstack)
    assert features.shape == (num_tokens, width)


def test_live_requests_share_one_processed_copy(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    preparer = ImagePreparer(prepared("qwen3-grouped").model)
    image = decode_image(picture(1), ImageLimits())
    first = preparer.prepare(image)
    assert preparer.prepare(image) is first
    del first
    gc.collect()
    assert len(preparer._live) == 0
