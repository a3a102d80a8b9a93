"""Log lines as JSON objects on stderr, each with the identifiers of the request that it is about.

What people ask, what they show and what they are told never gets here: callers pass numbers, names
and identifiers through `extra={"fields": {...}}`, and of an exception a line has its type and place
but not its words, which may quote a prompt. Where words are needed and safe, the caller says them.

`bind` names what the running task is about; lines of that task, of tasks that it begins and of
threads that run in a copy of its context have it from there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

Fields = Mapping[str, object]

_BOUND: ContextVar[Fields] = ContextVar("log_fields")
_NOTHING: Fields = {}


def bind(**fields: object) -> None:
    """Have the lines of this task say so from now on; an empty value ends what was said."""
    every = {**bound(), **fields}
    _BOUND.set({name: value for name, value in every.items() if value is not None and value != ""})


def bound() -> Fields:
    """What this task's lines say."""
    return _BOUND.get(_NOTHING)


def error_fields(error: BaseException) -> dict[str, object]:
    """Type and place of an error and of those that it came from, without their words."""
    chain = list(_chain(error))
    frames = [
        frame for each in reversed(chain) for frame in traceback.format_tb(each.__traceback__)
    ]
    return {"error": " from ".join(type(each).__name__ for each in chain), "traceback": frames}


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, what is bound, and the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **bound(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line |= error_fields(record.exc_info[1])
        return json.dumps(line, default=str)


class BoundFields(logging.Filter):
    """Puts what is bound on each record, for formatters that show what they find there."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        for name, value in bound().items():
            setattr(record, name, value)
        return True


def configure(level: str) -> None:
    """Send every logger's lines to stderr in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Its start-up lines repeat ours.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def tell_lost_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log what nobody awaited by its type and place; asyncio itself would print its words."""

    def tell(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        fields = {} if error is None else error_fields(error)
        logging.getLogger("chiasm.loop").error(
            "%s", context.get("message", "an error was lost"), extra={"fields": fields}
        )

    loop.set_exception_handler(tell)
