"""The built-in picture that goes through the model before a pod may call itself ready."""

from __future__ import annotations

import io

from chiasm_contract.messages import ChatMessage, GenerateHead, ImagePart, Sampling, TextPart
from PIL import Image, ImageDraw

_SIDE_PIXELS = 112
_QUESTION = "What is in the picture?"


def probe_picture() -> bytes:
    """A PNG of a red disc on white."""
    image = Image.new("RGB", (_SIDE_PIXELS, _SIDE_PIXELS), "white")
    ImageDraw.Draw(image).ellipse((28, 28, 84, 84), fill="red")
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def probe_request(request_id: str, with_picture: bool) -> tuple[GenerateHead, list[bytes]]:
    """One greedy token about the probe picture; text alone for a model that takes no pictures."""
    parts: list[ImagePart | TextPart] = [TextPart(text=_QUESTION)]
    if with_picture:
        parts.insert(0, ImagePart(index=0))
    head = GenerateHead(
        request_id=request_id,
        messages=(ChatMessage(role="user", content=tuple(parts)),),
        sampling=Sampling(temperature=0, max_tokens=1),
    )
    return head, [probe_picture()] if with_picture else []
