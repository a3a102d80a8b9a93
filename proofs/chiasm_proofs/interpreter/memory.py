"""Memory for the proofs: poisoned, with guard bands, or larger than this machine.

    | guard: NaN | row 0 | hole: NaN | row 1 | hole: NaN | ... | guard: NaN |

A kernel that reads what is not its own computes with NaN, which shows; one that writes there is
told by `intact`. Integers are poisoned with a number far outside every table.

Must not know: kernels.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch

GUARD = 64
POISON_INT = 0x5A


def _poison(storage: torch.Tensor) -> None:
    if storage.dtype.is_floating_point and storage.dtype.itemsize > 1:
        storage.fill_(float("nan"))
    else:
        storage.view(torch.uint8).fill_(POISON_INT)


class Poisoned:
    """Makes tensors whose surroundings are poison, and tells afterwards whether they still are."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._made: list[tuple[torch.Tensor, torch.Tensor]] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype, hole: int = 0) -> torch.Tensor:
        """A tensor full of poison.

        Args:
            hole: elements between one index of the first axis and the next, so that the tensor is
                not contiguous.
        """
        inner = math.prod(shape[1:]) + hole
        size = inner * shape[0] + 2 * GUARD
        storage = torch.empty(size, dtype=dtype, device=self.device)
        _poison(storage)
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        if strides:
            strides[0] = inner
        view = storage.as_strided(tuple(shape), tuple(strides), GUARD)
        self._made.append((storage, view))
        return view

    def holding(self, values: torch.Tensor, hole: int = 0) -> torch.Tensor:
        """A copy of `values` amid poison."""
        tensor = self.empty(values.shape, values.dtype, hole)
        tensor.copy_(values)
        return tensor

    def far(self, shape: Sequence[int], dtype: torch.dtype, stride: int) -> torch.Tensor:
        """A tensor full of poison, `stride` elements from one index of the first axis to the next.

        On the CPU it takes memory only where it holds something.
        """
        size = stride * (shape[0] - 1) + math.prod(shape[1:])
        if self.device.type == "cpu":
            storage = sparse(size, dtype)
        else:
            storage = torch.empty(size, dtype=dtype, device=self.device)
        inner = [math.prod(shape[i + 1 :]) for i in range(1, len(shape))]
        view = storage.as_strided(tuple(shape), (stride, *inner))
        view.copy_(self._fresh(dtype).expand(view.shape))
        return view

    def intact(self) -> bool:
        """Whether guards and holes of all tensors made are still poison."""
        for storage, view in self._made:
            around = storage.clone()
            around.as_strided(view.shape, view.stride(), GUARD).copy_(
                self._fresh(view.dtype).expand(view.shape)
            )
            fresh = torch.empty_like(storage)
            _poison(fresh)
            if not torch.equal(around.view(torch.uint8), fresh.view(torch.uint8)):
                return False
        return True

    def _fresh(self, dtype: torch.dtype) -> torch.Tensor:
        one = torch.empty(1, dtype=dtype, device=self.device)
        _poison(one)
        return one


def sparse(num_elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Flat zeros that take memory only where they are touched; for offsets beyond 2^31."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    room = mmap.mmap(-1, num_elements * dtype.itemsize, flags=flags)
    return torch.frombuffer(room, dtype=dtype)
