"""Reads along in the answer of another sidecar: what it says, how long it is, whether it is whole.

A stream is passed on event by event: an event of which a part has not come is of no use to a client
either, and behind a whole one a fault can still be told. How many tokens there are and when they
came is known where the answer is made: that sidecar says so in a header, or in a comment at the end
of a stream, which are taken out here.

Must not know: clocks, HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract.errors import Unavailable

from chiasm_sidecar.traffic.counting import Timing

_END = b"\n\n"
_DATA = b"data: "
_FAULT = b'data: {"error"'
_COMMENT = b": chiasm "
_MEASURES = re.compile(r"(\d{1,9}) (\d{1,6}\.\d{6})(?: (\d{1,6}\.\d{6}))?")
_MAX_EVENT_BYTES = 4 * 2**20


MEASURES_HEADER = b"x-chiasm-measures"


def measures(num_tokens: int, timing: Timing) -> bytes:
    """What the sidecar that answers tells the one that passes the answer on."""
    gap = timing.mean_gap_seconds
    more = "" if gap is None else f" {gap:.6f}"
    return f"{num_tokens} {timing.first_token_seconds:.6f}{more}".encode()


def comment(said: bytes) -> bytes:
    """The same within a stream."""
    return _COMMENT + said + _END


@dataclass
class Observed:
    """An answer as far as it has come."""

    texts: dict[int, list[str]] = field(default_factory=dict)
    num_tokens: int | None = None
    timing: Timing | None = None
    whole: bool = False
    fault_status: int | None = None  # of an error that the stream ended with

    def answers(self) -> list[str]:
        """The text of each choice, in order."""
        return ["".join(self.texts[index]) for index in sorted(self.texts)]

    def read_measures(self, said: str) -> None:
        """What `measures` wrote; anything else tells nothing."""
        found = _MEASURES.fullmatch(said)
        if found is not None:
            gap = None if found[3] is None else float(found[3])
            self.num_tokens, self.timing = int(found[1]), Timing(float(found[2]), gap)

    def read_complete(self, data: bytes) -> None:
        """An answer that is one JSON object; what is none is not whole."""
        try:
            answer = json.loads(data)
            for choice in answer["choices"]:
                self.texts[choice["index"]] = [choice["message"]["content"] or ""]
        except (ValueError, KeyError, TypeError):
            return
        self.whole = True


class StreamReader:
    """Takes a stream of events apart; what it says is read only where somebody asks for it."""

    def __init__(self, observed: Observed, keeps_text: bool) -> None:
        self.observed = observed
        self._keeps_text = keeps_text
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The whole events that have come and are to be passed on.

        Raises: Unavailable for an event without an end.
        """
        head, end, rest = (self._rest + data).rpartition(_END)
        if len(rest) > _MAX_EVENT_BYTES:
            raise Unavailable("The other revision sent an endless event; ask again.")
        self._rest = rest
        if not end:
            return b""
        passed = []
        for event in head.split(_END):
            if event.startswith(_COMMENT):
                self.observed.read_measures(event[len(_COMMENT) :].decode("ascii", "replace"))
                continue
            passed.append(event + _END)
            self._read(event)
        return b"".join(passed)

    def _read(self, event: bytes) -> None:
        if event == b"data: [DONE]":
            self.observed.whole = True
        if not event.startswith(_DATA):
            return
        # There is one event a token: parsing each would cost more than all else of passing it on.
        if not self._keeps_text and not event.startswith(_FAULT):
            return
        try:
            chunk = json.loads(event[len(_DATA) :])
        except ValueError:
            return
        if not isinstance(chunk, dict):
            return
        if "error" in chunk:
            self.observed.fault_status = 503
        for choice in chunk.get("choices") or ():
            self._note(choice)

    def _note(self, choice: Mapping[str, Any]) -> None:
        text = (choice.get("delta") or {}).get("content")
        if isinstance(text, str):
            self.observed.texts.setdefault(choice.get("index", 0), []).append(text)
