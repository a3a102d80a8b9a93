"""What became of the requests of each revision: exact counts of the plan's present window.

An attempt is one request at one revision. It belongs to the window in which it began: counts of a
window that is over are of no use to anybody. `in_flight` does not begin anew, for a revision may
go only once nothing runs there any more.

Must not know: clocks, HTTP, Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http import HTTPStatus

from chiasm_contract.traffic import LATENCY_BOUNDS, Counts, VersionReport

CLIENT_CLOSED = 499


@dataclass
class Tally:
    """Counts that grow."""

    requests: int = 0
    errors: int = 0
    rerouted: int = 0
    answers: int = 0
    output_tokens: int = 0
    output_tokens_squared: int = 0
    shadowed: int = 0
    shadow_errors: int = 0
    shadow_late: int = 0
    agreed: int = 0
    first_token: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    inter_token: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))

    def counts(self) -> Counts:
        """As they are reported."""
        lists = {"first_token": tuple(self.first_token), "inter_token": tuple(self.inter_token)}
        return Counts(**{**vars(self), **lists})


class Books:
    """The counts of one sidecar."""

    def __init__(self) -> None:
        self._tallies: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
        self._drawn: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()

    def start_window(self) -> None:
        """Counting begins anew."""
        self._tallies = defaultdict(Tally)
        self._drawn = Counter()

    def drew(self, revision: str) -> None:
        """A new conversation was drawn by the share."""
        self._drawn[revision] += 1

    def tally(self, revision: str, modality: str) -> Tally:
        """That of the present window."""
        return self._tallies[revision, modality]

    def begin(self, revision: str, modality: str, started: float) -> Attempt:
        """A request goes to `revision`."""
        self.in_flight[revision] += 1
        return Attempt(self, revision, modality, started)

    def report(
        self, revisions: set[str], guard_rejects: dict[str, int]
    ) -> dict[str, VersionReport]:
        """By revision; also of others than `revisions` as long as something runs there."""
        counted = {revision for revision, _ in self._tallies}
        running = {revision for revision, count in self.in_flight.items() if count}
        report = {}
        for revision in sorted(revisions | counted | running):
            by_modality = {
                modality: tally.counts()
                for (of, modality), tally in sorted(self._tallies.items())
                if of == revision
            }
            if rejects := guard_rejects.get(revision, 0):
                unknown = by_modality.get("unknown", Counts())
                by_modality["unknown"] = unknown.model_copy(update={"guard_rejects": rejects})
            report[revision] = VersionReport(
                new_conversations=self._drawn[revision],
                in_flight=self.in_flight[revision],
                by_modality=by_modality,
            )
        return report


@dataclass(frozen=True)
class Timing:
    """Of one whole answer, measured where it was made."""

    first_token_seconds: float
    mean_gap_seconds: float | None  # between its tokens; None: it has one


class Attempt:
    """One request at one revision. Whoever begins it must end it, once."""

    def __init__(self, books: Books, revision: str, modality: str, started: float) -> None:
        self._books = books
        self._tally = books.tally(revision, modality)
        self.revision = revision
        self.modality = modality
        self.started = started

    def reroute(self) -> None:
        """Not answered here; another revision is asked instead."""
        self._end()
        self._tally.errors += 1
        self._tally.rerouted += 1

    def contradict(self) -> None:
        """It was refused, and another revision then answered the same request."""
        self._tally.errors += 1
        self._tally.rerouted += 1

    def end(self, status: int, num_output_tokens: int | None, timing: Timing | None) -> str:
        """It ended with this status as the client saw it; returns that as a word."""
        self._end()
        if status >= 500:
            self._tally.errors += 1
            return "failed"
        if status == CLIENT_CLOSED:
            return "abandoned"
        if status != HTTPStatus.OK:
            return "refused"
        self._tally.answers += 1
        length = num_output_tokens or 0
        self._tally.output_tokens += length
        self._tally.output_tokens_squared += length * length
        if timing is not None:
            self._tally.first_token[bisect_left(LATENCY_BOUNDS, timing.first_token_seconds)] += 1
            if timing.mean_gap_seconds is not None:
                self._tally.inter_token[bisect_left(LATENCY_BOUNDS, timing.mean_gap_seconds)] += 1
        return "answered"

    def _end(self) -> None:
        self._books.in_flight[self.revision] -= 1
        self._tally.requests += 1
