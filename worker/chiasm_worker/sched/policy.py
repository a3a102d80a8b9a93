"""In which order requests are served, and who gives way when blocks run out.

First come, first served: the oldest running request is scheduled first and preempted last, so
that work already done is kept and no request starves.

Must not know: blocks, torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from chiasm_worker.request import Request


class WaitingQueue:
    """Arrival order, except that a preempted request goes back to the front."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def append(self, request: Request) -> None:
        """Queue a new request."""
        self._requests.append(request)

    def push_front(self, request: Request) -> None:
        """Queue a preempted request before all others."""
        self._requests.appendleft(request)

    def peek(self) -> Request | None:
        """The request to admit next."""
        return self._requests[0] if self._requests else None

    def pop(self) -> Request:
        """Take the request to admit next."""
        return self._requests.popleft()

    def remove(self, request: Request) -> None:
        """Take out a request that was aborted."""
        self._requests.remove(request)


def choose_victim(running: list[Request]) -> Request:
    """The running request that loses its blocks first: the one admitted last."""
    return running[-1]
