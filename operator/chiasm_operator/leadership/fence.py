"""What every write passes: only a leader writes, and only for as long as its lease surely holds.

The time is this process's own, which goes on while the process is stopped. A leader gives up before
another one may begin, so what is checked here right before a request is sent needs no agreement of
clocks. What was on its way already is met by the API server: a status carries the epoch of its
writer, which the CRD lets only grow, and the version of the resource that was looked at.

Must not know: Kubernetes, how a lease is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from chiasm_contract import names

# A Lease counts its transitions in 32 bits. A status that claims more than half of them was written
# by hand: who followed it could soon count no further, and then nobody could lead.
FARTHEST = 2**30


class OutOfReach(Exception):
    """A status claims an epoch that no leader can have had."""


class Deposed(Exception):
    """This process may not write (any more)."""


class Fence:
    """The present right to write."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._epoch: int | None = None
        self._until = 0.0
        self._highest_seen = 0

    def open(self, epoch: int, until: float) -> None:
        """This process leads with `epoch`, until that time unless it is renewed."""
        self._epoch = epoch
        self._until = until

    def close(self) -> None:
        """This process does not lead."""
        self._epoch = None

    @property
    def is_open(self) -> bool:
        """Whether writing is allowed at this moment."""
        return self._epoch is not None and self._clock() < self._until

    def check(self) -> int:
        """The epoch to write with.

        Raises: Deposed when this process does not lead.
        """
        if self._epoch is None or not self.is_open:
            raise Deposed("This operator does not lead (any more), so it writes nothing.")
        return self._epoch

    def meet(self, epoch: int) -> int:
        """The epoch to write with over a status that `epoch` wrote.

        Raises: Deposed when this process does not lead or `epoch` is above its own: then another
        operator leads, or the Lease was lost and the keeper has to count on from there. OutOfReach
        when it is so far above that nobody may count on from there.
        """
        own = self.check()
        if epoch > max(own, FARTHEST):
            raise OutOfReach(
                f"status.operatorEpoch is {epoch}, above this leader's {own} and what any leader "
                f"can have counted ({FARTHEST}); take it away: kubectl patch {names.SHORT_NAME} "
                "NAME --subresource=status --type=json "
                """-p '[{"op": "remove", "path": "/status/operatorEpoch"}]'."""
            )
        self._highest_seen = max(self._highest_seen, epoch)
        if epoch > own:
            raise Deposed(
                f"status.operatorEpoch is {epoch}, above this leader's {own}: another operator "
                "writes here too, or the Lease was made anew (then this passes by itself)."
            )
        return own

    @property
    def highest_seen(self) -> int:
        """The highest epoch in any status that was looked at."""
        return self._highest_seen
