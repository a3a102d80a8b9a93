"""What cameras and networks do to a picture: blur, noise, light, JPEG. Rotation is drawing's.

Each strength is drawn at random, none at all included, and stays within what a person still reads.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageFilter


def distort(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The same picture after a random selection of faults; its size is kept."""
    if rng.random() < 0.4:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.8)))
    pixels = np.asarray(picture, dtype=np.float32)
    if rng.random() < 0.5:
        pixels = (pixels - 128) * rng.uniform(0.8, 1.15) + 128 + rng.uniform(-20, 20)
    if rng.random() < 0.5:
        pixels = pixels + rng.normal(0, rng.uniform(1, 10), pixels.shape).astype(np.float32)
    picture = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    if rng.random() < 0.4:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=int(rng.integers(50, 96)))
        picture = Image.open(buffer).convert("RGB")
    return picture
