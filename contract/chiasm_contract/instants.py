"""Points in time as a status holds them (RFC 3339, UTC, whole seconds) and as plain seconds.

Must not know: clocks; the present is always an argument.
"""

from __future__ import annotations

from datetime import UTC, datetime

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def to_seconds(text: str) -> int:
    """Seconds since 1970 of a time such as 2026-01-02T03:04:05Z.

    Raises: ValueError when `text` is no such time.
    """
    return int(datetime.strptime(text, _FORM).replace(tzinfo=UTC).timestamp())


def to_text(seconds: int) -> str:
    """The other way round."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_FORM)
