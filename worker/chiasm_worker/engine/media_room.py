"""How many bytes of processed media all requests may hold at once.

A processed picture is many times its file: a few dozen large ones would end the process. Requests
of one scope that bring the same picture share one copy, so it is counted once. A request that
brings nothing new is always let in, and so is the first to bring anything, whatever its size: the
limits on media per request bound that.

Must not know: HTTP, torch. Use from one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

from chiasm_contract.errors import Overloaded


class MediaRoom:
    """Distinct media held by the requests inside, each with the size that it was let in with."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._holders: Counter[Hashable] = Counter()
        self._sizes_bytes: dict[Hashable, int] = {}

    @contextmanager
    def hold(self, sizes_bytes: Mapping[Hashable, int], retry_after_seconds: int) -> Iterator[None]:
        """Room for one request's media until its end.

        Args:
            sizes_bytes: by what is in memory once, however many requests hold it.

        Raises: Overloaded when too much is held by others.
        """
        new = {key: size for key, size in sizes_bytes.items() if key not in self._holders}
        new_bytes = sum(new.values())
        if new_bytes and self.num_bytes and self.num_bytes + new_bytes > self.max_bytes:
            raise Overloaded(
                f"Media of other requests hold {self.num_bytes} of {self.max_bytes} bytes and "
                f"this request brings {new_bytes} more. Try again later, ask another replica or "
                "send smaller files.",
                retry_after_seconds=retry_after_seconds,
            )
        self._holders.update(sizes_bytes.keys())
        self._sizes_bytes.update(new)
        self.num_bytes += new_bytes
        try:
            yield
        finally:
            for key in sizes_bytes:
                self._holders[key] -= 1
                if not self._holders[key]:
                    del self._holders[key]
                    self.num_bytes -= self._sizes_bytes.pop(key)
