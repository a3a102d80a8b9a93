"""What the worker's socket says of its timeline, and how a request gets onto it.

Must not know: what is noted.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping

from chiasm_contract import logs, trace_context
from chiasm_contract.timeline import last_seconds
from starlette.responses import Response

from chiasm_worker.engine.engine import Engine
from chiasm_worker.timeline import reading
from chiasm_worker.timeline.ring import Timeline

_JSON = "application/json"


def begin(timeline: Timeline, request: str, started: float, headers: Mapping[str, str]) -> None:
    """A request has been received: the log names it, and one whose trace is sampled is followed."""
    context = trace_context.parse(headers)
    logs.bind(
        answer_id=request,
        request_id=headers.get("x-request-id"),
        trace_id=context and context.trace_id,
    )
    if context is not None and context.sampled:
        timeline.follow(request, context.to_bytes())
    timeline.notes(request).since(started, "receive")


async def answer_timeline(engine: Engine, query: Mapping[str, str]) -> Response:
    """GET /timeline?last_seconds=60 or ?request=ID: a Recording.

    Raises: InvalidRequest.
    """
    num_blocks = engine.pool.num_blocks
    request = query.get("request")
    if request is not None:
        read = functools.partial(reading.of_request, engine.timeline, request, num_blocks)
    else:
        seconds = last_seconds(query)
        read = functools.partial(reading.last, engine.timeline, seconds, num_blocks)
    # Tens of thousands of tuples take a while.
    return Response(await asyncio.to_thread(read), media_type=_JSON)


def answer_spans(engine: Engine, query: Mapping[str, str]) -> Response:
    """GET /spans?request=ID: the RequestSpans of a request that was asked with a sampled trace;
    they are given once."""
    found = reading.spans(engine.timeline, query.get("request", ""))
    return Response(found.model_dump_json(), media_type=_JSON)
