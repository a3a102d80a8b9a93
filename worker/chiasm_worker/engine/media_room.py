"""How many bytes of processed media all requests may hold at once.

A processed picture is many times its file: a few dozen large ones would end the process. Requests
of one scope that bring the same picture share one copy, so it is counted once. While nothing is
held, a request is let in whatever it brings: the limits on media per request bound that.

Must not know: HTTP, torch. Use from one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from chiasm_contract.errors import Overloaded

MediaKey = tuple[str, bytes]
"""Whose requests share the item (scope_fp), and the digest of what it shows."""


class MediaRoom:
    """Distinct media held by the requests inside, each counted once."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._holders: Counter[MediaKey] = Counter()

    @contextmanager
    def hold(self, sizes_bytes: Mapping[MediaKey, int], retry_after_seconds: int) -> Iterator[None]:
        """Room for one request's media until its end.

        Raises: Overloaded when too much is held by others.
        """
        new_bytes = sum(size for which, size in sizes_bytes.items() if which not in self._holders)
        if self.num_bytes and self.num_bytes + new_bytes > self.max_bytes:
            raise Overloaded(
                f"Media of other requests hold {self.num_bytes} of {self.max_bytes} bytes and "
                f"this request brings {new_bytes} more. Try again later, ask another replica or "
                "send smaller files.",
                retry_after_seconds=retry_after_seconds,
            )
        self._holders.update(sizes_bytes.keys())
        self.num_bytes += new_bytes
        try:
            yield
        finally:
            for which, size in sizes_bytes.items():
                self._holders[which] -= 1
                if not self._holders[which]:
                    del self._holders[which]
                    self.num_bytes -= size
