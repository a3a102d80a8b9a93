"""Draws exactly a share: error diffusion over what is counted, without chance.

A splitter carries a remainder in [0, 1): each draw adds the share to it, and a draw that reaches 1
is a hit and takes 1 away. After n draws of share w that began at phase p, the hits are
floor(n w + p). With p = r/R for the R splitters of a fleet and equally many draws at each, the hits
of all are sum floor(n w + r/R) = floor(R n w) (Hermite), so that the fleet is as exact as one
splitter; with unequal n each is off by less than 1.

The remainder outlives a change of the share and of the members: what is owed stays owed, so errors
never add up over many changes. Only a splitter that has not drawn takes another phase.

Must not know: what is drawn, clocks. Rational arithmetic throughout.
"""

from __future__ import annotations

from fractions import Fraction

from chiasm_contract.traffic import WHOLE


class Splitter:
    """One place of a fleet."""

    def __init__(self, phase: Fraction) -> None:
        self._remainder = phase
        self.num_drawn = 0

    def rephase(self, phase: Fraction) -> None:
        """Another place in the fleet, for a splitter that has not drawn; else nothing."""
        if not self.num_drawn:
            self._remainder = phase

    def draw(self, share: int) -> bool:
        """Whether the next one is a hit, at `share` parts of WHOLE."""
        if not share:
            return False
        self.num_drawn += 1
        self._remainder += Fraction(share, WHOLE)
        if self._remainder < 1:
            return False
        self._remainder -= 1
        return True


def phase_of(member: str, members: tuple[str, ...]) -> Fraction:
    """r/R for the member at place r of R; 0 for whoever is not among them."""
    if member not in members:
        return Fraction(0)
    return Fraction(members.index(member), len(members))
