"""Kernels with faults, planted to see that the checker finds them.

Each function launches one and returns nothing; run in a process whose checker is installed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl


@triton.jit
def _overrun_kernel(x, y, n, SIZE: tl.constexpr):
    r = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    # The load has no mask.
    tl.store(y + r, tl.load(x + r), mask=r < n)


@triton.jit
def _write_overrun_kernel(y, SIZE: tl.constexpr):
    r = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + r, r)


@triton.jit
def _counter_kernel(x):
    tl.store(x, tl.load(x) + 1)


@triton.jit
def _same_place_kernel(y):
    tl.store(y, tl.program_id(0))


@triton.jit
def _neighbour_kernel(x, y, SIZE: tl.constexpr):
    i = tl.program_id(0)
    tl.store(x + i, i)
    # Right only where programs run in order and the one before has finished.
    tl.store(y + i, tl.load(x + (i + SIZE - 1) % SIZE))


@triton.jit
def _colliding_kernel(y, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)
    tl.store(y + r // 2, r)


@triton.jit
def _wrapping_kernel(table, x, y, stride):
    # int32 x int32 wraps beyond 2^31.
    tl.store(y, tl.load(x + tl.load(table) * stride))


def overrun() -> None:
    """Reads eight elements past the end."""
    _overrun_kernel[(3,)](torch.zeros(40), torch.zeros(40), 40, 16)


def write_overrun() -> None:
    """Writes past the end."""
    _write_overrun_kernel[(3,)](torch.zeros(40, dtype=torch.int32), 16)


def lost_update() -> None:
    """Programs read and write one counter."""
    _counter_kernel[(4,)](torch.zeros(1))


def same_place() -> None:
    """All programs write one place."""
    _same_place_kernel[(4,)](torch.zeros(1, dtype=torch.int32))


def neighbour() -> None:
    """Each program reads what another one writes in the same launch."""
    x, y = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    _neighbour_kernel[(4,)](x, y, 4)


def colliding_lanes() -> None:
    """Two lanes of one store have one address."""
    _colliding_kernel[(1,)](torch.zeros(16, dtype=torch.int32), 16)


def wrapping_offset() -> None:
    """Block 3 x stride 2^30 is negative in int32."""
    table = torch.tensor([3], dtype=torch.int32)
    _wrapping_kernel[(1,)](table, torch.zeros(64), torch.zeros(1), 1 << 30)


# What is planted -> (how, what of the finding must be said)
PLANTED: dict[str, tuple[Callable[[], None], str]] = {
    "read past the end": (overrun, "nearest is x, the first lane 0 elements past its end"),
    "write past the end": (write_overrun, "nearest is y"),
    "lost update": (lost_update, "x: program"),
    "one place, many writers": (same_place, "write one place"),
    "read of another program's write": (neighbour, "x: program"),
    "colliding lanes": (colliding_lanes, "lanes of one store of program 0 collide"),
    "offset beyond 2^31 in int32": (wrapping_offset, "before its start"),
}
