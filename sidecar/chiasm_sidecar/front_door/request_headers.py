"""The headers of a client that a sidecar reads, and those that it hands on with a request."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from chiasm_contract.errors import InvalidRequest
from chiasm_contract.trace_context import TRACEPARENT, TRACESTATE, TraceContext

REQUEST_ID = "x-request-id"
_FORM = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def request_id(headers: Mapping[str, str]) -> str:
    """The caller's X-Request-Id, or a new one.

    Raises: InvalidRequest when the caller's cannot be echoed and logged safely.
    """
    given = headers.get(REQUEST_ID)
    if given is None:
        return uuid.uuid4().hex
    if not _FORM.fullmatch(given):
        raise InvalidRequest(
            "The header X-Request-Id takes 1 to 128 letters, digits or ._:/+=@- .",
            param="X-Request-Id",
        )
    return given


def handed_on(
    headers: Mapping[str, str], request_id: str, trace: TraceContext | None
) -> dict[str, str]:
    """A client's headers as another sidecar gets them: of a trace of ours as its part, else with
    the client's own."""
    told = {**headers, REQUEST_ID: request_id}
    if trace is None:
        return told
    for name in (TRACEPARENT, TRACESTATE):
        told.pop(name, None)
    return told | within(trace)


def within(trace: TraceContext) -> dict[str, str]:
    """What tells another sidecar of which span it is a part."""
    state = {TRACESTATE: trace.state} if trace.state else {}
    return {TRACEPARENT: trace.header, **state}
