"""How a conversation is recognised when its next turn comes.

By name, where the client sends the header: its own, or what an answer gave it, `NAME@REVISION`. The
revision after the @ says whom the conversation is with to sidecars that have never seen it; a
client that makes one up chooses between the revisions for its own requests, and no more.

By content, where it does not: every later turn repeats the first turns and the first answer. Both
are in the key, for many conversations begin alike. Of a long text or a file the key holds the
length and both ends: this runs between the events of all other answers, and may take no
milliseconds.

The caller's scope is in every key, so nobody's conversation is found by somebody else. What does
not match (an answer that was edited) is a conversation whose pin is lost.

Must not know: plans, clocks. Pure functions of their arguments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from chiasm_contract.errors import InvalidRequest
from chiasm_contract.messages import ChatMessage, TextPart
from chiasm_contract.names import CONVERSATION_HEADER

_HEADER = re.compile(r"([A-Za-z0-9._:/+=-]{1,128})(?:@([A-Za-z0-9._:-]{1,128}))?")
_SAMPLE_BYTES = 4096


def parse_header(value: str) -> tuple[str, str | None]:
    """The conversation's name, and the revision that an answer said it is with.

    Raises: InvalidRequest when it cannot be a name.
    """
    found = _HEADER.fullmatch(value)
    if found is None:
        raise InvalidRequest(
            f"The header {CONVERSATION_HEADER} takes 1 to 128 letters, digits or ._:/+=- , or "
            "what an earlier answer of the conversation carried.",
            param=CONVERSATION_HEADER,
        )
    return found[1], found[2]


def header_of(name: str, revision: str) -> str:
    """What an answer tells a client to send next time."""
    return f"{name}@{revision}"


def key_of_name(scope_fp: str, name: str) -> bytes:
    """The key of a conversation that the client names."""
    return _digest(b"name", scope_fp, [name.encode()])


def has_answer(messages: Sequence[ChatMessage]) -> bool:
    """Whether this is a later turn: something has been answered before."""
    return any(message.role == "assistant" for message in messages)


def opening_of(scope_fp: str, messages: Sequence[ChatMessage], files: Iterable[bytes]) -> bytes:
    """Digest of what stands before the first answer; files are those of the whole request, in the
    order in which the conversation shows them."""
    pieces: list[bytes] = []
    remaining = iter(files)
    for message in messages:
        if message.role == "assistant":
            break
        pieces.append(message.role.encode())
        for part in message.content:
            if isinstance(part, TextPart):
                pieces += _sample(part.text.encode())
            else:
                pieces += _sample(next(remaining, b""))
    return _digest(b"opening", scope_fp, pieces)


def first_answer(messages: Sequence[ChatMessage]) -> str:
    """The text of the first answer that a later turn repeats."""
    message = next(message for message in messages if message.role == "assistant")
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def key_of_content(opening: bytes, answer: str) -> bytes:
    """The key of a conversation that begins so; clients may have trimmed the answer."""
    return _digest(b"content", "", [opening, answer.strip().encode()])


def _sample(data: bytes) -> list[bytes]:
    """Enough of a text or a file to tell it from others without hashing megabytes."""
    return [str(len(data)).encode(), data[:_SAMPLE_BYTES], data[-_SAMPLE_BYTES:]]


def _digest(kind: bytes, scope_fp: str, pieces: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for piece in (kind, scope_fp.encode(), *pieces):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.digest()
