"""The built-in question that goes through the model before a pod may call itself ready.

It is about a picture, unless the pod takes none, and within the limits that requests have.
"""

from __future__ import annotations

import io
import math

from chiasm_contract.config import ImageLimits
from chiasm_contract.messages import ChatMessage, GenerateHead, ImagePart, MediaFiles, TextPart
from chiasm_contract.sampling import Sampling
from PIL import Image, ImageDraw

_MAX_SIDE_PIXELS = 112
_QUESTION = "What is in the picture?"


def probe_picture(max_pixels: int) -> bytes:
    """A PNG of a red disc on white."""
    side = min(_MAX_SIDE_PIXELS, math.isqrt(max_pixels))
    image = Image.new("RGB", (side, side), "white")
    ImageDraw.Draw(image).ellipse([side // 4, side // 4, side * 3 // 4, side * 3 // 4], fill="red")
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def probe_request(request_id: str, limits: ImageLimits) -> tuple[GenerateHead, MediaFiles]:
    """One greedy token about the probe picture; text alone where requests may bring no picture."""
    with_picture = limits.max_per_prompt > 0
    parts: list[ImagePart | TextPart] = [TextPart(text=_QUESTION)]
    if with_picture:
        parts.insert(0, ImagePart(index=0))
    head = GenerateHead(
        request_id=request_id,
        messages=(ChatMessage(role="user", content=tuple(parts)),),
        sampling=Sampling(temperature=0, max_tokens=1),
    )
    return head, MediaFiles((probe_picture(limits.max_pixels),)) if with_picture else MediaFiles()
