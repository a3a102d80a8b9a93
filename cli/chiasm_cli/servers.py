"""A connection to a server at an address; what can go wrong with it becomes a sentence.

Standard library only. Must not know: what is asked.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from chiasm_cli.errors import CliError


@contextmanager
def connection(
    url: str, example: str, next_step: str, timeout_seconds: float
) -> Iterator[http.client.HTTPConnection]:
    """To the server at `url`.

    Args:
        example: an address as it should be written.
        next_step: a sentence for who finds nobody there.

    Raises: CliError for what is no address, and when nothing answers.
    """
    parts = urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    try:
        kind, port = kinds.get(parts.scheme), parts.port
    except ValueError as error:
        raise CliError(f"{url!r} is not an address: {error}.") from error
    if kind is None or not parts.hostname:
        raise CliError(f"{url!r} is not an address; write it like {example} .")
    made = kind(parts.hostname, port, timeout=timeout_seconds)
    try:
        yield made
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CliError(f"nothing answers at {url} ({why}). {next_step}") from error
    finally:
        made.close()


def fault(body: bytes, status: int, url: str, who: str) -> str:
    """What a server says of a status other than 200; `who` it should be, if it says nothing."""
    try:
        message: str = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return f"{url} answered with status {status}; is it {who}?"
    return message
