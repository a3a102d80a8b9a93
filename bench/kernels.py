"""Every Triton kernel on a GPU: its share of what the GPU can do, and others beside it.

First the ceilings, in the same run: bytes copied and bf16 operations of a matrix product, a second.
Then each piece of work that cases.py describes: the median time, the share of the copy or matrix
rate that what must be moved or computed comes to, its goal, and PyTorch's own operations,
FlashInfer and FlashAttention (where installed) on the same arguments. Prompts with pictures and
windows are compared with one in which all is seen, by operations: a mask must skip work, not only
hide it. Needs a GPU that the kernels are proved for; correctness is `make test-gpu`.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from typing import Any

import torch
from chiasm_worker.kernels.case import Draw, function_of, operations
from chiasm_worker.kernels.launch import architecture
from chiasm_worker.kernels.work import Plain, Work, work_of
from gpu.clock import ceilings, timed
from gpu.peers import PEERS, Peer
from reporting import publish

# Prompts of paged_prefill: the one in which all is seen, and those in which a mask hides some.
DENSE = "8192, all seen"
SPARSE = (
    "8192, causal",
    "8192, pictures",
    "8192, window of 1024",
    "8192, pictures, window of 1024",
)
# Time of a sparse prompt, at most, against the dense one's share that it sees.
SPARSE_COST = 1.15


def l2_bytes(device: torch.device) -> int:
    """The last cache before memory."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size)


def beside(peer: Peer, inputs: dict[str, Any], ours: float) -> dict[str, Any] | None:
    """A peer's time and how many times ours it is; why not, where it refuses; None: not asked."""
    if not peer.is_here:
        return {"missing": f"{peer.package} is not installed"}
    try:
        launch = peer.prepare(inputs)
        if launch is None:
            return None
        found = timed(launch)
    except Exception as error:
        # Whatever another library raises, the rest is still measured.
        return {"refused": f"{type(error).__name__}: {str(error)[:200]}"}
    return {**found.as_row(), "times_ours": round(found.seconds / ours, 3)}


def measured(
    operation: str, work: Work, limits: dict[str, float], device: torch.device, seed: int
) -> dict[str, Any]:
    """One piece of work, ours and the peers'."""
    inputs = work.draw(Draw(seed, Plain(device)))
    kernel = functools.partial(function_of(operation, work.function, reference=False), **inputs)
    outputs = kernel()
    amount = work.amount(inputs, outputs if isinstance(outputs, tuple) else (outputs,))
    ours = timed(kernel)
    rate = amount / ours.seconds
    share = rate / limits[work.ceiling]
    asked = {peer.name: beside(peer, inputs, ours.seconds) for peer in PEERS[work.function]}
    return {
        "operation": operation,
        "work": work.name,
        **ours.as_row(),
        "ceiling": work.ceiling,
        "rate": rate,
        "share": round(share, 3),
        "goal": work.goal,
        "met": share >= work.goal,
        # Then the share is of the copy rate, and what is read is not from memory.
        "fits_cache": work.ceiling == "copy" and amount < l2_bytes(device),
        "peers": {name: row for name, row in asked.items() if row is not None},
    }


def sparse_costs(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Time of prompts with a mask against dense time x what they see of it; 1: nothing lost."""
    rates = {row["work"]: row["rate"] for row in rows if row["operation"] == "paged_prefill"}
    return {name: round(rates[DENSE] / rates[name], 3) for name in SPARSE if name in rates}


def main() -> None:
    """Measure, print a line each, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=operations(), help="measure one operation")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(
            "kernels: torch finds no GPU, so that nothing can be timed. Run it on a machine with "
            "one; what can be shown without is `make bench BENCH=kernel_gates` and "
            "`BENCH=kernel_equality`."
        )
    device = torch.device("cuda", 0)
    machine = architecture(device)
    limits = ceilings(device)
    print(torch.cuda.get_device_name(device), machine, limits, flush=True)
    rows: list[dict[str, Any]] = []
    for operation in [args.only] if args.only else operations():
        for work in work_of(operation):
            row = measured(operation, work, limits, device, args.seed)
            print(row, flush=True)
            rows.append(row)
            torch.cuda.empty_cache()
    if args.only:
        return
    costs = sparse_costs(rows)
    publish(
        "kernels",
        {
            "device": torch.cuda.get_device_name(device),
            "architecture": machine,
            "copy_bytes_per_second": limits["copy"],
            "matmul_operations_per_second": limits["matmul"],
            "works": len(rows),
            "goals_met": sum(row["met"] for row in rows),
            "sparse_cost": costs,
            "sparse_cost_met": all(cost <= SPARSE_COST for cost in costs.values()),
            "rows": rows,
            "seed": args.seed,
        },
    )


if __name__ == "__main__":
    main()
