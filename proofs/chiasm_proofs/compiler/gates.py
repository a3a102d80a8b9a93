"""What every build must satisfy, and the sentences for what it does not.

Must not know: how anything is compiled.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from chiasm_worker.kernels.case import Build

from chiasm_proofs.compiler.build import compile_for, compile_launch
from chiasm_proofs.compiler.issue import Issue, issue
from chiasm_proofs.compiler.resources import Resources, disassemble, read
from chiasm_proofs.compiler.targets import TARGETS, Target


@dataclass(frozen=True)
class Judged:
    """A build on a target: what it takes, and which gates it fails."""

    operation: str
    build: str
    target: str
    resources: Resources
    issue: Issue | None
    failures: tuple[str, ...]
    seconds: float
    max_issue_ratio: float | None

    def as_row(self) -> dict[str, Any]:
        """For a table."""
        row = {"operation": self.operation, "build": self.build, "target": self.target}
        ratio = None if self.issue is None else self.issue.ratio
        loop = None if self.issue is None else self.issue.instructions
        return {
            **row,
            **asdict(self.resources),
            "loop_instructions": loop,
            "issue_ratio": ratio,
            "max_issue_ratio": self.max_issue_ratio,
            "failures": list(self.failures),
            "seconds": round(self.seconds, 2),
        }


def refusals(target: Target, taken: Resources) -> list[str]:
    """Why a GPU would not run it at all."""
    found = []
    if taken.shared_bytes > target.block_shared_bytes:
        found.append(
            f"{taken.shared_bytes} bytes of shared memory; {target.name} gives a block "
            f"{target.block_shared_bytes}"
        )
    if taken.occupancy <= 0:
        found.append("not one block fits a multiprocessor")
    return found


def failures(build: Build, target: Target, taken: Resources, loop: Issue | None) -> list[str]:
    """The gates that a build fails on a target."""
    limits, found = build.limits, refusals(target, taken)
    if taken.spills:
        found.append(f"{taken.spills} spills; there must be none")
    if taken.load_bits < limits.load_bits:
        found.append(f"loads are {taken.load_bits} bits wide; {limits.load_bits} are asked for")
    if limits.tensor_core and not taken.matrix_ops:
        found.append("there is no matrix instruction")
    if limits.max_issue_ratio is not None and target.bytes_per_clock:
        if loop is None:
            found.append("no hot loop was found")
        elif loop.ratio > limits.max_issue_ratio:
            found.append(
                f"the hot loop's issue ratio is {loop.ratio}; {limits.max_issue_ratio} is allowed"
            )
    return found


def judge(operation: str, build: Build, target_name: str) -> Judged:
    """Compile a build and hold it to its limits."""
    target = TARGETS[target_name]
    binary = compile_for(operation, build, target)
    taken = read(binary, target)
    loop = None
    if target.is_nvidia and build.limits.tile_bytes:
        instructions = disassemble(binary.code)
        loop = issue(instructions, binary.num_warps, build.limits.tile_bytes, target)
    failed = tuple(failures(build, target, taken, loop))
    ratio = build.limits.max_issue_ratio
    return Judged(operation, build.name, target_name, taken, loop, failed, binary.seconds, ratio)


def judge_launch(launch: dict[str, Any], target: str) -> dict[str, Any]:
    """Compile what a launch was noted as: it must compile and fit, whatever its shapes.

    Spills are told and allowed: shapes of models are builds, which are held to all gates.
    """
    taken = read(compile_launch(launch, TARGETS[target]), TARGETS[target])
    return {**asdict(taken), "refusals": refusals(TARGETS[target], taken)}
