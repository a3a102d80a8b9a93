"""Is a tier worth asking now? A tier that fails or is slow is left alone for a while. Pure.

    closed -- so many failures in a row --> open -- pause over --> one probe
    probe well: closed; probe failed: open again, for twice as long, up to a limit

Must not know: clocks (times are arguments, in seconds of any steady clock), tiers.
"""

from __future__ import annotations

from dataclasses import dataclass

_MAX_FAILURES = 3
_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0


@dataclass
class Breaker:
    """One tier's record of late."""

    max_failures: int = _MAX_FAILURES
    first_pause_seconds: float = _FIRST_PAUSE_SECONDS
    max_pause_seconds: float = _MAX_PAUSE_SECONDS

    def __post_init__(self) -> None:
        self._num_failures = 0
        self._pause_seconds = 0.0
        self._next_probe_at = 0.0
        self._probing = False

    @property
    def open(self) -> bool:
        """Whether the tier is left alone, but for probes."""
        return self._pause_seconds > 0

    def allows(self, now: float) -> bool:
        """Whether to ask the tier now; a True of an open breaker is its one probe of a pause."""
        if not self.open:
            return True
        if now < self._next_probe_at:
            return False
        self._next_probe_at = now + self._pause_seconds
        self._probing = True
        return True

    def succeeded(self) -> None:
        """The tier answered in time."""
        self._num_failures = 0
        self._pause_seconds = 0.0
        self._probing = False

    def failed(self, now: float) -> None:
        """The tier failed, or took too long."""
        self._num_failures += 1
        if self._probing:
            self._pause_seconds = min(2 * self._pause_seconds, self.max_pause_seconds)
        elif self.open or self._num_failures < self.max_failures:
            return  # one of several that were on their way when it opened, or too few yet
        else:
            self._pause_seconds = self.first_pause_seconds
        self._probing = False
        self._next_probe_at = now + self._pause_seconds
