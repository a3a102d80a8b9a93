"""From a picture's bytes to canonical pixels with a digest.

Canonical means: what a person would see, in 8-bit RGB. The orientation that the camera noted is
applied, transparency lies on white, 16-bit grey is scaled (not clipped), palettes and CMYK are
converted, of an animation the first frame counts. Two files with equal canonical pixels are the
same picture, however they were compressed.

Everything wrong with the bytes is the client's fault and answered with a sentence that never
repeats a library's own message (those may carry memory addresses).

Must not know: models, tokens.
"""

from __future__ import annotations

import hashlib
import io
import struct
from dataclasses import dataclass

import numpy as np
from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import InvalidRequest, RequestTooLarge
from PIL import Image, ImageOps

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
# Beyond it processors refuse what they are given, pictures and frames alike.
MAX_ASPECT_RATIO = 200
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
    name, param = f"Picture {index + 1}", f"images[{index}]"
    if len(data) > limits.max_bytes:
        raise RequestTooLarge(
            f"{name} has {len(data)} bytes; at most {limits.max_bytes} are allowed. Send a "
            "smaller or more compressed one.",
            param=param,
        )
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image.size, limits, name, param)
            image.load()
            canonical = _canonical(image)
    except (RequestTooLarge, InvalidRequest):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise RequestTooLarge(
            f"{name} has more pixels than the {limits.max_pixels} allowed. Send a smaller one.",
            param=param,
        ) from None
    except Exception:
        raise InvalidRequest(
            f"{name} cannot be decoded: it is truncated, damaged or not one of "
            f"{', '.join(FORMATS)}. Send the whole file.",
            param=param,
        ) from None
    return CanonicalImage(canonical, _digest(canonical))


def _check_size(size: tuple[int, int], limits: ImageLimits, name: str, param: str) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise RequestTooLarge(
            f"{name} has {width} x {height} pixels; at most {limits.max_pixels} pixels are "
            "allowed. Send a smaller one.",
            param=param,
        )
    if max(size) > MAX_ASPECT_RATIO * min(size):
        raise InvalidRequest(
            f"{name} has {width} x {height} pixels; one side may be at most "
            f"{MAX_ASPECT_RATIO} times the other. Crop it.",
            param=param,
        )


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
