"""What moving rows is held to: every byte."""

from __future__ import annotations

from collections.abc import Callable

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Outputs, Tolerance
from chiasm_worker.kernels.work import Work

_EXACT = Tolerance(0.0, 0.0, "bytes are moved")


def _draw(num_rows: int, num_bytes: int, far: bool = False) -> Callable[[Draw], Inputs]:
    def draw(random: Draw) -> Inputs:
        num_blocks = num_rows + 3
        held = random.memory.holding
        if far:
            stride = ((1 << 31) // (num_blocks - 1) + 64) // 16 * 16 * 4
            source = random.memory.far((num_blocks, num_bytes), torch.uint8, stride)
        else:
            source = random.memory.empty((num_blocks, num_bytes), torch.uint8, hole=64)
        values = random.uniform(num_blocks, num_bytes) * 256
        source.copy_(values.to(torch.uint8))
        taken = torch.tensor(random.permutation(num_blocks)[:num_rows], dtype=torch.int32)
        put = torch.tensor(random.permutation(num_rows + 2)[:num_rows], dtype=torch.int32)
        if num_rows > 2:
            taken[0] = num_blocks - 1 if num_blocks - 1 not in taken else taken[0]
            taken[1], put[2] = -1, -1
        return {
            "source": source,
            "source_rows": held(taken),
            "target": random.memory.empty((num_rows + 2, num_bytes), torch.uint8, hole=64),
            "target_rows": held(put),
        }

    return draw


def _case(
    name: str, num_rows: int, num_bytes: int, *, far: bool = False, quick: bool = False
) -> Case:
    return Case(
        name,
        "row_copy",
        _draw(num_rows, num_bytes, far),
        _EXACT,
        lambda inputs: len(inputs["source_rows"]),
        _alone,
        _of_alone,
        writes_partly=True,
        quick=quick,
    )


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    rows = slice(row, row + 1)
    alone: Inputs = {name: inputs[name][rows] for name in ("source_rows", "target_rows")}
    return {**inputs, **alone}, lambda outputs: _moved(inputs, outputs, row)


def _moved(inputs: Inputs, outputs: Outputs, row: int) -> Outputs:
    """Where a row went; nothing where it was not moved."""
    take, put = int(inputs["source_rows"][row]), int(inputs["target_rows"][row])
    return () if min(take, put) < 0 else (outputs[0][put],)


def _of_alone(inputs: Inputs, outputs: Outputs) -> Outputs:
    return _moved(inputs, outputs, 0)


CASES = (
    _case("a few", 5, 320, quick=True),
    _case("one small row", 1, 64),
    _case("larger than a program", 3, 9280),
    _case("none", 0, 64),
    _case("beyond 2^31", 3, 64, far=True, quick=True),
)

_TYPES = {
    "source": "*i32", "source_rows": "*i32", "target": "*i32", "target_rows": "*i32",
    "num_words": "i32", "source_stride": "i64", "target_stride": "i64",
}  # fmt: skip
BUILDS = (
    Build(
        "rows",
        "row_copy_kernel",
        _TYPES,
        {},
        ("row_copy", "default"),
        ["source", "target", "source_stride", "target_stride", "num_words"],
        quick=True,
    ),
)


def _copied(inputs: Inputs, outputs: Outputs) -> int:
    """Both ways, what both tables name."""
    del outputs
    both = (inputs["source_rows"] >= 0) & (inputs["target_rows"] >= 0)
    return int(2 * both.sum() * inputs["source"].shape[1])


WORK = (
    Work(
        "512 records of 1 MiB",
        "row_copy",
        _draw(512, 1 << 20),
        _draw(5, 320),
        "copy",
        _copied,
        0.85,
    ),
)
