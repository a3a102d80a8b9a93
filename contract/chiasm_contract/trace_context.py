"""W3C Trace Context: the header `traceparent` in, the header `traceresponse` out.

A header that breaks the rules counts as absent, as the standard has it: whoever gets it begins a
trace of its own. https://www.w3.org/TR/trace-context-2/

Must not know: who samples, what spans are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
TRACERESPONSE = "traceresponse"

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
CONTEXT_BYTES = TRACE_ID_BYTES + SPAN_ID_BYTES
_SAMPLED = 1
_MAX_TRACESTATE_CHARS = 512
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """Whose span something happens in: 32 and 16 hex digits, neither of them all zero."""

    trace_id: str
    span_id: str
    flags: int = _SAMPLED
    state: str = ""  # the header tracestate, handed on as it came

    @property
    def sampled(self) -> bool:
        """Whether whoever asks records this trace."""
        return bool(self.flags & _SAMPLED)

    @property
    def header(self) -> str:
        """As traceparent or traceresponse."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def to_bytes(self) -> bytes:
        """Trace and span, where flags have no room: only sampled ones are worth it."""
        return bytes.fromhex(self.trace_id + self.span_id)

    @classmethod
    def from_bytes(cls, data: bytes) -> TraceContext | None:
        """The sampled context that `to_bytes` wrote; None where there is none."""
        if len(data) != CONTEXT_BYTES:
            return None
        trace_id, span_id = data[:TRACE_ID_BYTES].hex(), data[TRACE_ID_BYTES:].hex()
        return cls(trace_id, span_id) if _is_valid(trace_id, span_id) else None


def parse(headers: Mapping[str, str]) -> TraceContext | None:
    """The caller's context; None when there is none, or none that the standard lets through."""
    found = _FORM.fullmatch(headers.get(TRACEPARENT, "").strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    # Version ff is forbidden; version 00 has exactly four parts, later ones may add more.
    if version == "ff" or (version == "00" and rest) or not _is_valid(trace_id, span_id):
        return None
    state = headers.get(TRACESTATE, "").strip()
    return TraceContext(
        trace_id, span_id, int(flags, 16), state if len(state) <= _MAX_TRACESTATE_CHARS else ""
    )


def _is_valid(trace_id: str, span_id: str) -> bool:
    return trace_id.strip("0") != "" and span_id.strip("0") != ""
