"""Watches every load and store of a kernel in Triton's interpreter, and shuffles its programs.

The interpreter runs programs one after the other, in order, on plain addresses: what lies outside
an argument is read as garbage or ends the process, and races between programs cannot be seen. Here

    bounds   each lane that a mask lets through must lie in one of the launch's arguments
    races    no two programs touch a byte that one of them writes; no two lanes of a store collide
    order    programs run in an order drawn from a seed

An argument reaches from its first to its last element, holes between strides included. Atomics are
held to the bounds only: that programs meet there is what they are for.

Must not know: which kernels there are. Invariant: findings are those of the last launch.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

Array = np.ndarray[Any, Any]
Builder = interpreter.InterpreterBuilder
Executor = interpreter.GridExecutor

_MANY = -1
# Arguments beyond this (sparse ones, beyond 2^31 elements) are watched byte by byte in a dict.
_DENSE_BYTES = 1 << 24


class OutOfBounds(IndexError):
    """A lane left every argument; says which program, how many lanes, and what lies nearest."""


@dataclass
class _Argument:
    """One tensor argument and who touched each of its bytes (1 + program; 0: nobody)."""

    name: str
    start: int
    end: int
    readers: Array | dict[int, int] = field(init=False)
    writers: Array | dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        dense = self.end - self.start <= _DENSE_BYTES
        size = self.end - self.start
        self.readers = np.zeros(size, np.int32) if dense else {}
        self.writers = np.zeros(size, np.int32) if dense else {}


def _seen(shadow: Array | dict[int, int], offsets: Array) -> Array:
    if isinstance(shadow, dict):
        return np.array([shadow.get(int(o), 0) for o in offsets], np.int32)
    return np.asarray(shadow[offsets])


def _mark(shadow: Array | dict[int, int], offsets: Array, values: Array) -> None:
    if isinstance(shadow, dict):
        shadow.update(zip(offsets.tolist(), values.tolist(), strict=True))
    else:
        shadow[offsets] = values


class Checker:
    """What is known of one launch."""

    def __init__(self) -> None:
        # Launches of each kernel since somebody cleared it.
        self.launches: Counter[str] = Counter()
        self.arguments: list[_Argument] = []
        self.races: list[str] = []
        self._order: random.Random | None = None
        self._permutation: list[int] = []
        self._count = 0
        self.program = 0

    def shuffle(self, seed: int | None) -> None:
        """Run programs in an order drawn from `seed` from the next launch on; None: in order."""
        self._order = None if seed is None else random.Random(seed)

    def begin(self, named: list[tuple[str, torch.Tensor]]) -> None:
        """A launch begins with these tensor arguments."""
        self.arguments = sorted(
            (_Argument(name, *_extent(tensor)) for name, tensor in named if tensor.numel()),
            key=lambda argument: argument.start,
        )
        self.races = []
        self._permutation, self._count = [], 0

    def next_program(self, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        """Which program comes next."""
        if self._count == 0:
            self._permutation = list(range(grid[0] * grid[1] * grid[2]))
            if self._order is not None:
                self._order.shuffle(self._permutation)
        self.program = self._permutation[self._count]
        self._count += 1
        x, rest = divmod(self.program, grid[1] * grid[2])
        return (x, *divmod(rest, grid[2]))

    def find(self, pointers: Any, mask: Any, what: str) -> Iterator[tuple[_Argument, Array]]:
        """The arguments that the active lanes touch, with the bytes' offsets in each.

        Raises: OutOfBounds.
        """
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        addresses = np.asarray(pointers.data).astype(np.uint64).ravel()
        active = np.broadcast_to(mask.data, pointers.data.shape).astype(bool).ravel()
        addresses = addresses[active]
        if not addresses.size:
            return
        inside = np.zeros(addresses.shape, bool)
        for argument in self.arguments:
            here = (addresses >= argument.start) & (addresses + np.uint64(size) <= argument.end)
            # Two arguments may be views of one storage: the first that holds a lane owns it.
            here &= ~inside
            if here.any():
                offsets = (addresses[here] - np.uint64(argument.start)).astype(np.int64)
                yield argument, offsets[:, None] + np.arange(size)
            inside |= here
        if not inside.all():
            raise OutOfBounds(self._outside(addresses[~inside], size, what))

    def _outside(self, addresses: Array, size: int, what: str) -> str:
        address = int(addresses[0])
        if not self.arguments:
            return f"{what}: the launch has no tensor argument."
        near = min(self.arguments, key=lambda a: min(abs(address - a.start), abs(address - a.end)))
        if address < near.start:
            where = f"{-((address - near.start) // size)} elements before its start"
        else:
            where = f"{(address - near.end) // size} elements past its end"
        return (
            f"{what}: {addresses.size} lanes of program {self.program} lie outside every argument; "
            f"the nearest is {near.name}, the first lane {where}."
        )

    def read(self, argument: _Argument, offsets: Array) -> None:
        """A program reads these bytes."""
        flat, me = np.unique(offsets), self.program + 1
        writers = _seen(argument.writers, flat)
        foreign = writers[(writers != 0) & (writers != me)]
        if foreign.size:
            self._race(argument, f"program {foreign[0] - 1} wrote what program {me - 1} reads")
        readers = _seen(argument.readers, flat)
        _mark(argument.readers, flat, np.where((readers == 0) | (readers == me), me, _MANY))

    def write(self, argument: _Argument, offsets: Array) -> None:
        """A program writes these bytes."""
        flat, me = np.unique(offsets), self.program + 1
        if flat.size != offsets.size:
            self._race(argument, f"lanes of one store of program {me - 1} collide")
        writers, readers = _seen(argument.writers, flat), _seen(argument.readers, flat)
        foreign = writers[(writers != 0) & (writers != me)]
        if foreign.size:
            self._race(argument, f"programs {foreign[0] - 1} and {me - 1} write one place")
        if ((readers != 0) & (readers != me)).any():
            self._race(argument, f"program {me - 1} writes what another one read")
        _mark(argument.writers, flat, np.full(flat.shape, me, np.int32))

    def _race(self, argument: _Argument, what: str) -> None:
        sentence = f"{argument.name}: {what}"
        if len(self.races) < 10 and sentence not in self.races:
            self.races.append(sentence)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(name, item)
    elif isinstance(getattr(value, "base", None), torch.Tensor):
        yield name, value.base


CHECKER = Checker()
_installed: list[bool] = []


def install() -> Checker:
    """Watch all launches of this process from now on; the same checker each time."""
    if _installed:
        return CHECKER
    _installed.append(True)
    load, store = Builder.create_masked_load, Builder.create_masked_store
    rmw, cas = Builder.create_atomic_rmw, Builder.create_atomic_cas
    begin, place = Executor._init_args_hst, Builder.set_grid_idx

    def checked_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        for argument, offsets in CHECKER.find(ptrs, mask, "load"):
            CHECKER.read(argument, offsets)
        return load(self, ptrs, mask, *rest, **named)

    def checked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        for argument, offsets in CHECKER.find(ptrs, mask, "store"):
            CHECKER.write(argument, offsets)
        return store(self, ptrs, value, mask, *rest)

    def checked_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        list(CHECKER.find(ptr, mask, "atomic"))
        return rmw(self, op, ptr, val, mask, *rest)

    def checked_cas(self: Any, ptr: Any, *rest: Any) -> Any:
        everywhere = interpreter.TensorHandle(
            np.ones_like(ptr.data, dtype=bool), interpreter.tl.int1
        )
        list(CHECKER.find(ptr, everywhere, "atomic"))
        return cas(self, ptr, *rest)

    def checked_begin(self: Any, args_dev: Any, kwargs: Any) -> Any:
        CHECKER.launches[self.fn.__name__] += 1
        host = begin(self, args_dev, kwargs)
        named = [*zip(self.arg_names, host[0], strict=False), *host[1].items()]
        CHECKER.begin([pair for name, value in named for pair in _tensors(name, value)])
        return host

    def shuffled_place(self: Any, *_: int) -> None:
        place(self, *CHECKER.next_program(self.grid_dim))

    Builder.create_masked_load, Builder.create_masked_store = checked_load, checked_store
    Builder.create_atomic_rmw, Builder.create_atomic_cas = checked_rmw, checked_cas
    Executor._init_args_hst, Builder.set_grid_idx = checked_begin, shuffled_place
    # Arguments are on the CPU as they are; copying them onto themselves touches every page of a
    # sparse one.
    Executor._restore_args_dev = lambda *_: None
    return CHECKER
