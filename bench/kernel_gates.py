"""Every build of every Triton kernel compiled for five GPUs that are not here, and judged.

For each: registers, spills, shared memory, occupancy, the widest load, matrix instructions, and on
sm_90 what the hot loop issues for each clock that memory needs for its tile (proofs/chiasm_proofs
says how each is read). A build fails where it spills, does not fit, loads narrowly, multiplies
without tensor cores, or issues more than its limit. Beside the builds, whose types and constants
are said, every launch of every case is noted on the interpreter and compiled as it is for each GPU:
whatever its shapes, it must compile and fit. `--only` names an operation, and publishes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chiasm_proofs.child import Child, ProofError
from chiasm_worker.kernels.case import builds_of, cases_of, operations
from chiasm_worker.kernels.launch import ARCHITECTURES
from reporting import publish

SHOWN = ("registers", "spills", "shared_bytes", "occupancy", "load_bits", "issue_ratio")


def judged(child: Child, operation: str) -> Iterator[dict[str, Any]]:
    """An operation's builds on their targets, one after the other."""
    for build in builds_of(operation):
        for target in build.targets or ARCHITECTURES:
            asked: dict[str, Any] = {
                "operation": operation, "name": build.name, "target": target,
            }  # fmt: skip
            try:
                yield child.ask("build", **asked)
            except ProofError as error:
                # A kernel that a target refuses is a finding, not a failure to measure.
                yield {
                    "operation": operation, "build": build.name, "target": target,
                    "failures": [str(error)], "seconds": 0.0,
                }  # fmt: skip


def launched(children: tuple[Child, Child], operation: str, seed: int) -> Iterator[dict[str, Any]]:
    """The launches of an operation's cases on each GPU, each kind once."""
    interpreted, compiled = children
    for target in ARCHITECTURES:
        seen: list[dict[str, Any]] = []
        for case in cases_of(operation):
            if case.interpreter_only:
                continue
            asked: dict[str, Any] = {
                "operation": operation, "name": case.name, "seed": seed, "machine": target,
            }  # fmt: skip
            for launch in interpreted.ask("launches", **asked)["launches"]:
                if launch in seen:
                    continue
                seen.append(launch)
                where = {"operation": operation, "case": case.name, "target": target}
                where["kernel"] = launch["kernel"]
                try:
                    found = compiled.ask("launch", launch=launch, target=target)
                    yield where | {"spills": found["spills"], "refusals": found["refusals"]}
                except ProofError as error:
                    yield where | {"spills": 0, "refusals": [str(error)]}


def highest_ratio(rows: list[dict[str, Any]], limit: float | None) -> float | None:
    """The highest issue ratio of builds that are held to a limit; None: of those held to none."""
    found = [
        row["issue_ratio"]
        for row in rows
        if row.get("issue_ratio") is not None and row["max_issue_ratio"] == limit
    ]
    return max(found, default=None)


def main() -> None:
    """Compile, print a line each, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=operations(), help="judge one operation")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31, help="of the cases")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    launches: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        Child("compiled", Path(scratch)) as child,
        Child("interpreted", Path(scratch)) as interpreter,
    ):
        for operation in [args.only] if args.only else operations():
            for row in judged(child, operation):
                shown = " ".join(f"{name}={row.get(name)}" for name in SHOWN)
                print(operation, row["build"], row["target"], shown, *row["failures"], flush=True)
                rows.append(row)
            for launch in launched((interpreter, child), operation, args.seed):
                launches.append(launch)
                if launch["refusals"]:
                    print(launch, flush=True)
    if args.only:
        return
    publish(
        "kernel_gates",
        {
            "gates_failed": sum(len(row["failures"]) for row in rows)
            + sum(len(launch["refusals"]) for launch in launches),
            "num_builds": len(rows),
            "launches": len(launches),
            "launches_refused": sum(bool(launch["refusals"]) for launch in launches),
            # Of shapes that no build has: odd heads, rows that are not aligned.
            "launches_that_spill": [launch for launch in launches if launch["spills"]],
            "seed": args.seed,
            "num_kernels": len({(row["operation"], row["build"]) for row in rows}),
            "targets": list(ARCHITECTURES),
            "spills": sum(row.get("spills", 0) for row in rows),
            # Decoding with one query; sm_90.
            "highest_issue_ratio_bf16": highest_ratio(rows, 0.6),
            # 4 bits of quantised weights among them.
            "highest_issue_ratio_8_bits": highest_ratio(rows, 0.8),
            # Several queries or wide heads: bound by what is computed, and held to no limit.
            "highest_issue_ratio_ungated": highest_ratio(rows, None),
            "median_compile_seconds": round(statistics.median(r["seconds"] for r in rows), 2),
            "builds": rows,
        },
    )


if __name__ == "__main__":
    main()
