"""Tracks of slices and counters as any viewer draws them; times are nanoseconds of the wall clock.

Must not know: who noted them, in which format they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chiasm_contract.timeline import Detail

# From the outermost group to the track itself.
Path = tuple[str, ...]


@dataclass(frozen=True)
class Slice:
    """Something that took time on a track; an instant when start and end are one.

    Attributes:
        flows: numbers of arrows that begin here.
        ends: numbers of arrows that end here.
    """

    name: str
    start: int
    end: int
    details: Mapping[str, Detail] = field(default_factory=dict)
    flows: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


@dataclass
class Drawing:
    """All that is drawn. Invariant: slices of one track nest or follow one another."""

    slices: dict[Path, list[Slice]] = field(default_factory=dict)
    counters: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    num_flows: int = 0

    def add(self, path: Path, *slices: Slice) -> None:
        """Draw slices on a track."""
        self.slices.setdefault(path, []).extend(slices)

    def count(self, path: Path, moment: int, value: int) -> None:
        """Draw one reading of a counter."""
        self.counters.setdefault(path, []).append((moment, value))

    def flow(self) -> int:
        """The number of one more arrow."""
        self.num_flows += 1
        return self.num_flows


@dataclass(frozen=True)
class Edge:
    """A slice's begin (+1), its end (-1), or an instant (0)."""

    moment: int
    side: int
    slice: Slice


def edges(slices: Sequence[Slice]) -> list[Edge]:
    """The edges of one track in the order in which a viewer must read them: what ends at a moment
    before what begins then, and the longer of two that begin together first.

    A slice that outlasts the one around it, by the jitter of two clocks, is cut there.
    """
    found: list[Edge] = []
    open_slices: list[Slice] = []
    for each in sorted(slices, key=lambda s: (s.start, -s.end)):
        while open_slices and open_slices[-1].end <= each.start:
            done = open_slices.pop()
            found.append(Edge(done.end, -1, done))
        around = open_slices[-1].end if open_slices else each.end
        inside = each if each.end <= around else Slice(
            each.name, each.start, around, each.details, each.flows, each.ends
        )  # fmt: skip
        if inside.start == inside.end:
            found.append(Edge(inside.start, 0, inside))
        else:
            found.append(Edge(inside.start, 1, inside))
            open_slices.append(inside)
    while open_slices:
        done = open_slices.pop()
        found.append(Edge(done.end, -1, done))
    return found
