"""A Recording as JSON, written a few entries at a time.

One call of the library for all of it would hold the interpreter's lock until its end: for a full
recording of a worker 220 ms, in which the engine's thread makes no token. In pieces, whoever waits
for the lock has it after milliseconds. Call it from a thread of its own all the same.

Must not know: what an entry means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from chiasm_contract.timeline import Recording

# A step may have hundreds of rows.
PIECE_ENTRIES = 8
_JSON = json.JSONEncoder(separators=(",", ":"))


def encoded(recording: Recording) -> bytes:
    """What Recording.model_validate_json reads."""
    return "".join(pieces(recording)).encode()


def pieces(recording: Recording) -> Iterator[str]:
    """The same, each piece of at most PIECE_ENTRIES events or steps."""
    head = _JSON.encode(recording.model_dump(exclude={"events", "steps"}))
    yield f'{head[:-1]},"events":['
    yield from _listed(recording.events)
    yield '],"steps":['
    yield from _listed(recording.steps)
    yield "]}"


def _listed(entries: Sequence[object]) -> Iterator[str]:
    for start in range(0, len(entries), PIECE_ENTRIES):
        inside = _JSON.encode(entries[start : start + PIECE_ENTRIES])[1:-1]
        yield f",{inside}" if start else inside
