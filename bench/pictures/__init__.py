"""Pictures for benchmarks: noise that no two draws share, and the same pixels in other files."""

from __future__ import annotations

import io
import random

import numpy as np
from PIL import Image


def noise(rng: random.Random, smallest: int, largest: int, kind: str = "PNG") -> bytes:
    """A file of coloured noise, each side between the two."""
    width, height = rng.randint(smallest, largest), rng.randint(smallest, largest)
    draw = np.random.default_rng(rng.getrandbits(64))
    pixels = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return _file(Image.fromarray(pixels), kind)


def copies(file: bytes) -> list[bytes]:
    """The same canonical pixels in every lossless format."""
    with Image.open(io.BytesIO(file)) as opened:
        image = opened.convert("RGB")
    return [_file(image, "PNG"), _file(image, "WEBP", lossless=True), _file(image, "BMP")]


def _file(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
