"""Every kind of mask, position and picture: the plain path agrees, tokens see what they should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chiasm_contract.config import EngineLimits, ImageLimits, VisionConfig
from chiasm_worker.models.tiny import TINY_MODELS

from tests.worker.checkup.conftest import look
from tests.worker.server.running_worker import serving, tiny_config

# One of each family.
BY_FAMILY = {tiny.family: tiny for tiny in reversed(TINY_MODELS)}


@pytest.mark.parametrize("family", sorted(BY_FAMILY))
async def test_a_sound_model_of_any_family_has_no_finding(
    family: str, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    tiny = BY_FAMILY[family]
    images = ImageLimits(max_per_prompt=0 if family == "qwen2-audio" else 4)
    limits = EngineLimits(kv_cache_bytes=2**24, max_model_len=1024)
    config = tiny_config(tmp_path, tiny_folder(tiny.name), images=images, engine=limits)
    async with serving(config) as worker:
        told = await look(worker)
    assert told.findings == ()
    assert told.missed == ()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
async def test_narrow_numbers_are_no_drift(
    dtype: str, tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    config = tiny_config(tmp_path, tiny_folder("qwen3-grouped"), dtype=dtype)
    async with serving(config) as worker:
        told = await look(worker)
    assert told.findings == ()
    assert told.missed == ()


async def test_compressed_pictures_are_no_drift(
    tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    vision = VisionConfig(compression=4)
    config = tiny_config(tmp_path, tiny_folder("qwen3-grouped"), vision=vision)
    async with serving(config) as worker:
        told = await look(worker)
    assert told.findings == ()
    assert told.missed == ()
