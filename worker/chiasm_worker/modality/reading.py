"""What holds for every file of a client's that is decoded: its limits, and whose fault it is.

Everything wrong with the bytes is the client's fault and answered with a sentence that never
repeats a library's own message (those may carry memory addresses).

Must not know: formats, models.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chiasm_contract.config import MediaKind
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge
from chiasm_contract.messages import MEDIA_NAMES

# Beyond it processors refuse what they are given, pictures and frames alike.
MAX_ASPECT_RATIO = 200


@contextmanager
def reading(
    kind: MediaKind, index: int, data: bytes, max_bytes: int, wrong: str = "truncated or damaged"
) -> Iterator[str]:
    """Around the decoding of file number `index` of its kind; gives its name in sentences.

    Args:
        wrong: what it may be where decoding fails without a sentence.

    Raises: InvalidRequest when that happens, RequestTooLarge when the file has too many bytes. They
    and every ClientFault from inside say where in the request the file is.
    """
    name, param = f"{MEDIA_NAMES[kind].title()} {index + 1}", f"{kind}s[{index}]"
    try:
        if len(data) > max_bytes:
            raise RequestTooLarge(
                f"{name} has {len(data)} bytes; at most {max_bytes} are allowed. Send a smaller "
                "or more compressed one."
            )
        yield name
    except ClientFault as error:
        error.param = error.param or param
        raise
    except Exception:
        raise InvalidRequest(
            f"{name} cannot be decoded: it is {wrong}. Send the whole file.", param=param
        ) from None


def check_size(has: str, width: int, height: int, max_pixels: int) -> None:
    """Raise a ClientFault unless the model can be shown pixels of that size.

    Args:
        has: the beginning of the sentence, as in "Picture 1 has".
    """
    if width * height > max_pixels:
        raise RequestTooLarge(
            f"{has} {width} x {height} pixels; at most {max_pixels} pixels are allowed. Send a "
            "smaller one."
        )
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise InvalidRequest(
            f"{has} {width} x {height} pixels; one side may be at most {MAX_ASPECT_RATIO} times "
            "the other. Crop it."
        )
