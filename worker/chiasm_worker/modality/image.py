"""From a picture's bytes to canonical pixels with a digest.

Canonical means: what a person would see, in 8-bit RGB. The orientation that the camera noted is
applied, transparency lies on white, 16-bit grey is scaled (not clipped), palettes and CMYK are
converted, of an animation the first frame counts. Two files with equal canonical pixels are the
same picture, however they were compressed.

Must not know: models, tokens.
"""

from __future__ import annotations

import hashlib
import io
import struct
from dataclasses import dataclass

import numpy as np
from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import RequestTooLarge
from PIL import Image, ImageOps

from chiasm_worker.modality.reading import check_size, reading

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
STRIP_ROWS = 64
_TAG = b"chiasm.image.rgb8.v1"
_NEEDS_FLATTENING = ("RGBA", "LA", "PA", "RGBa", "La")


@dataclass(frozen=True, slots=True)
class CanonicalImage:
    """8-bit RGB pixels and their identity."""

    pixels: Image.Image
    digest: bytes


def decode_image(data: bytes, limits: ImageLimits, index: int = 0) -> CanonicalImage:
    """Decode picture number `index` of a request.

    Raises: InvalidRequest when it cannot be decoded, RequestTooLarge when it exceeds a limit.
    """
    wrong = f"truncated, damaged or not one of {', '.join(FORMATS)}"
    with reading("image", index, data, limits.max_bytes, wrong) as name:
        canonical = _decode(data, limits, name)
    return CanonicalImage(canonical, _digest(canonical))


def _decode(data: bytes, limits: ImageLimits, name: str) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            check_size(f"{name} has", *image.size, limits.max_pixels)
            image.load()
            return _canonical(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise RequestTooLarge(
            f"{name} has more pixels than the {limits.max_pixels} allowed. Send a smaller one."
        ) from None


def _digest(canonical: Image.Image) -> bytes:
    """Of the size and the pixels row by row; in strips, because Pillow keeps four bytes a pixel."""
    width, height = canonical.size
    digest = hashlib.sha256(_TAG + struct.pack("<II", width, height))
    for top in range(0, height, STRIP_ROWS):
        strip = canonical.crop((0, top, width, min(height, top + STRIP_ROWS)))
        digest.update(strip.tobytes())
    return digest.digest()


def _canonical(image: Image.Image) -> Image.Image:
    """What a person would see, as 8-bit RGB; `image` itself where that is what it shows."""
    ImageOps.exif_transpose(image, in_place=True)
    upright = image
    if upright.mode.startswith("I;16") or upright.mode == "I":
        # Pillow's own conversion would clip everything above 255 to white.
        wide = np.asarray(upright).astype(np.uint32)
        upright = Image.fromarray((np.minimum(wide, 65535) // 257).astype(np.uint8))
    if "transparency" in upright.info and upright.mode in ("L", "P", "RGB"):
        upright = upright.convert("RGBA")
    if upright.mode in _NEEDS_FLATTENING:
        picture = upright.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        upright = Image.alpha_composite(white, picture)
    return upright if upright.mode == "RGB" else upright.convert("RGB")
