"""Which namespaces are retired, read from a file that may change while the process runs.

A line each, whole or by the beginning; empty lines and those that begin with # say nothing. A file
that cannot be read or used changes nothing. An entry that is gone brings nothing back: what is
retired stays so (namespaces.py).

Must not know: tiers, what is done to a namespace that is retired.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from chiasm_contract.tiers import NAMESPACE_PREFIX

from chiasm_sidecar.kv.meters import Meters

log = logging.getLogger("chiasm.sidecar.kv")

_INTERVAL_SECONDS = 2.0
_MAX_BYTES = 2**20
_PREFIX = re.compile(NAMESPACE_PREFIX)


class ListRefused(ValueError):
    """The list cannot be used; says where and what a line must be."""


def parse(text: str) -> tuple[str, ...]:
    """The prefixes in a list.

    Raises: ListRefused.
    """
    prefixes = []
    for number, line in enumerate(text.splitlines(), 1):
        prefix = line.strip()
        if not prefix or prefix.startswith("#"):
            continue
        if not _PREFIX.fullmatch(prefix):
            raise ListRefused(
                f"Line {number} is {prefix[:60]!r}; a namespace is 16 lower-case hex digits each "
                "of compute_fp, repr_fp and scope_fp with - between them, or the beginning of that."
            )
        prefixes.append(prefix)
    return tuple(dict.fromkeys(prefixes))


class RetiredList:
    """Follows the file; `taken` gets all that it names whenever it is another one."""

    def __init__(
        self, path: Path | None, taken: Callable[[Sequence[str]], None], meters: Meters
    ) -> None:
        self._path = path
        self._taken = taken
        self._meters = meters
        self._seen: bytes | int | None = None

    async def watch(self) -> None:
        """Look for ever."""
        while self._path is not None:
            await asyncio.sleep(_INTERVAL_SECONDS)
            self.look()

    def look(self) -> None:
        """Take what the file says now, if that is another thing than before."""
        if self._path is None:
            return
        try:
            seen: bytes | int = _read(self._path)
        except OSError as error:
            seen = error.errno or 0
        if seen == self._seen:
            return
        self._seen = seen
        try:
            prefixes = parse(_text(seen))
        except ListRefused as error:
            self._meters.retired_list("refused")
            words = {"path": str(self._path), "why": str(error)}
            log.error("the list of retired namespaces is refused", extra={"fields": words})
            return
        self._meters.retired_list("taken")
        log.info("retired namespaces", extra={"fields": {"namespaces": list(prefixes)}})
        self._taken(prefixes)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES + 1)


def _text(seen: bytes | int) -> str:
    if isinstance(seen, int):
        raise ListRefused(f"The file cannot be read, errno {seen}.")
    if len(seen) > _MAX_BYTES:
        raise ListRefused(f"The file has more than {_MAX_BYTES} bytes.")
    return seen.decode("ascii", errors="replace")
