"""The built-in request whose answer is compared: a picture and a question, never a client's.

Its readers are nobody else, so it finds nothing of other requests in the cache and they nothing of
it; it is served after everybody else, and tiers are neither asked for it nor offered it.

Must not know: engines, what is compared.
"""

from __future__ import annotations

import hashlib
import io
import math

from chiasm_contract.config import ImageLimits
from chiasm_contract.messages import ChatMessage, GenerateHead, ImagePart, MediaFiles, TextPart
from chiasm_contract.sampling import Sampling
from PIL import Image, ImageDraw

from chiasm_worker.checkup.drift import STEPS

SCOPE_FP = hashlib.sha256(b"chiasm checkup").hexdigest()
NUM_TOKENS = max(STEPS)
_LAST_IN_QUEUE = 100
_MAX_SIDE_PIXELS = 112
_QUESTION = (
    "What is in the picture, where does it stand, which colour has it, and what is beside it?"
)


def picture(max_pixels: int) -> bytes:
    """A PNG with something everywhere, so that its tokens differ."""
    side = min(_MAX_SIDE_PIXELS, math.isqrt(max_pixels))
    image = Image.linear_gradient("L").resize((side, side)).convert("RGB")
    draw, third = ImageDraw.Draw(image), side // 3
    draw.ellipse((third // 2, third // 2, 2 * third, 2 * third), fill="crimson")
    draw.rectangle((2 * third, third, side - 2, 2 * third), fill="teal")
    draw.polygon(((2, side - 2), (third, 2 * third), (2 * third, side - 2)), fill="gold")
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def sample(
    name: str, limits: ImageLimits, *, with_picture: bool
) -> tuple[GenerateHead, MediaFiles]:
    """The request; about words alone where no picture may be brought."""
    with_picture = with_picture and limits.max_per_prompt > 0
    parts: list[ImagePart | TextPart] = [TextPart(text=_QUESTION)]
    if with_picture:
        parts.insert(0, ImagePart(index=0))
    head = GenerateHead(
        request_id=name,
        messages=(ChatMessage(role="user", content=tuple(parts)),),
        sampling=Sampling(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True),
        priority=_LAST_IN_QUEUE,
        scope_fp=SCOPE_FP,
    )
    return head, MediaFiles((picture(limits.max_pixels),)) if with_picture else MediaFiles()
