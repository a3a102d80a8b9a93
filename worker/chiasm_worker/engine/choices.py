"""Several answers to one prompt, whose prompt is computed once.

The first choice leads: the others are held back until it has computed the prompt, and then find
the prompt's blocks in the prefix cache while the first still holds them. They share those blocks by
reference; what each computes itself is the prompt's last, incomplete block and its own answer. When
a leader ends before that (aborted, failed), the next choice leads.

Where every token of a prompt sees every other (PaliGemma), no prefix of it can be shared: there
each choice computes the prompt, later than it could, and only its pictures are encoded once.

Must not know: the scheduler, what a request computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from chiasm_worker.request import Request


class HeldChoices:
    """Choices that wait for the one that computes their prompt."""

    def __init__(self) -> None:
        self._behind: dict[str, list[Request]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._behind.values()))

    def hold(self, leader: Request, others: Sequence[Request]) -> None:
        """Keep `others` until `leader` has computed their prompt."""
        if others:
            self._behind[leader.request_id] = list(others)

    def release(self, leader: Request) -> list[Request]:
        """The choices that may start, now that `leader` has computed the prompt."""
        return self._behind.pop(leader.request_id, [])

    def drop(self, request: Request) -> bool:
        """Forget a held choice; False if it is not held."""
        for leader_id, others in self._behind.items():
            if request in others:
                others.remove(request)
                if not others:
                    del self._behind[leader_id]
                return True
        return False

    def succeed(self, leader: Request) -> Request | None:
        """The choice that leads instead of one that ended early."""
        others = self.release(leader)
        if not others:
            return None
        successor, *rest = others
        self.hold(successor, rest)
        return successor
