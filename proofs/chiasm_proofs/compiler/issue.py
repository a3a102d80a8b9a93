"""Whether a hot loop leaves the memory system the time it needs: a gate, not a prediction.

The hot loop is the innermost backward branch that holds a matrix instruction. An SM issues one
instruction per clock in each of its four quarters, so a turn takes instructions x warps / 4 clocks;
special functions and slow conversions run at 16 lanes a clock, 8 clocks for each of a warp's. What
one turn reads takes bytes / (bytes per clock of an SM). The ratio of the two, below 0.6, leaves a
kernel bound by memory with room for latency.

Only for sm_90: on sm_100 the innermost loop is a wait on a barrier.

Must not know: kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from chiasm_proofs.compiler.resources import Instruction
from chiasm_proofs.compiler.targets import Target

_SLOW = re.compile(r"MUFU|F2F\b|F2F\.|I2F|F2I")


@dataclass(frozen=True)
class Issue:
    """One turn of the hot loop."""

    instructions: int
    slow_instructions: int
    issue_clocks: float
    memory_clocks: float

    @property
    def ratio(self) -> float:
        """Issue clocks for each memory clock."""
        return round(self.issue_clocks / self.memory_clocks, 3)


def hot_loop(instructions: list[Instruction]) -> list[Instruction]:
    """The body of the innermost loop that holds a matrix instruction; empty without one."""
    best: list[Instruction] = []
    for instruction in instructions:
        target = re.search(r"0x([0-9a-f]+)", instruction.operands)
        if not instruction.name.startswith("BRA") or target is None:
            continue
        start = int(target[1], 16)
        body = [i for i in instructions if start <= i.address <= instruction.address]
        if any(i.is_matrix for i in body) and (not best or len(body) < len(best)):
            best = body
    return best


def issue(
    instructions: list[Instruction], num_warps: int, tile_bytes: int, target: Target
) -> Issue | None:
    """The hot loop's clocks; None where there is no such loop."""
    body = hot_loop(instructions)
    if not body or not target.bytes_per_clock:
        return None
    slow = sum(1 for i in body if _SLOW.match(i.name))
    clocks = max(len(body), 8 * slow) * num_warps / 4
    return Issue(len(body), slow, clocks, tile_bytes / target.bytes_per_clock)
