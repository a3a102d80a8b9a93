"""What a kernel is held to: cases that are run, and builds that are compiled.

Plain descriptions; who runs and judges them is outside this package. Inputs are drawn anew each
time from a generator.

Must not know: Triton, how equality is judged, which targets there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch

Inputs = dict[str, Any]
Outputs = tuple[torch.Tensor, ...]


class Memory(Protocol):
    """Where inputs and outputs lie; the proofs put poison around and into them."""

    device: torch.device

    def empty(self, shape: Sequence[int], dtype: torch.dtype, hole: int = 0) -> torch.Tensor:
        """Memory that nobody has written, with `hole` elements behind each row."""
        ...

    def holding(self, values: torch.Tensor, hole: int = 0) -> torch.Tensor:
        """A copy of `values`, with `hole` elements behind each row."""
        ...

    def far(self, shape: Sequence[int], dtype: torch.dtype, stride: int) -> torch.Tensor:
        """Memory with `stride` elements from one row to the next, more than a machine may have."""
        ...


class Draw:
    """Random inputs of one case."""

    def __init__(self, seed: int, memory: Memory) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.memory = memory

    def normal(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Normal values in fp32."""
        return torch.randn(shape, generator=self._generator) * scale

    def uniform(self, *shape: int) -> torch.Tensor:
        """Values between 0 and 1 in fp32."""
        return torch.rand(shape, generator=self._generator)

    def integer(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(torch.randint(low, high + 1, (1,), generator=self._generator))

    def permutation(self, count: int) -> list[int]:
        """0..count-1 in any order."""
        return [int(i) for i in torch.randperm(count, generator=self._generator)]


@dataclass(frozen=True)
class Tolerance:
    """How far a kernel may be from its reference, and why: |a - b| <= absolute + relative |b|."""

    absolute: float
    relative: float
    reason: str


@dataclass(frozen=True)
class Case:
    """One way to call a function that reference.py and triton.py both have.

    Attributes:
        draw: the arguments by name; called with the same seed it draws the same.
        tolerance: of all outputs, or one for each.
        num_rows: how many rows (tokens, sequences) the arguments hold that must not influence one
            another; None where there is nothing of the kind.
        alone: (arguments, row) -> the arguments of that row alone, and a function that finds in the
            outputs of the whole what must be equal, bit for bit, to the outputs of the row alone.
        of_alone: finds the like in the outputs of the row alone, where those hold more than it.
        writes_partly: outputs hold what the call did not write, poison included.
        quick: belongs to `make test`, the others only to the whole run.
        interpreter_only: no GPU is launched so, for it has no matrix instructions of that type.
    """

    name: str
    function: str
    draw: Callable[[Draw], Inputs]
    tolerance: Tolerance | tuple[Tolerance, ...]
    num_rows: Callable[[Inputs], int] | None = None
    alone: Callable[[Inputs, int], tuple[Inputs, Callable[[Outputs], Outputs]]] | None = None
    of_alone: Callable[[Inputs, Outputs], Outputs] | None = None
    writes_partly: bool = False
    quick: bool = False
    interpreter_only: bool = False


@dataclass(frozen=True)
class Limits:
    """What a build must satisfy beyond no spills and fitting the target.

    Attributes:
        load_bits: the widest load must have so many bits at least.
        tensor_core: whether there must be matrix instructions.
        max_issue_ratio: highest ratio of issue cycles to memory cycles of the hot loop on sm_90.
        tile_bytes: bytes that one turn of the hot loop reads from memory.
    """

    load_bits: int = 128
    tensor_core: bool = False
    max_issue_ratio: float | None = None
    tile_bytes: int = 0


@dataclass(frozen=True)
class Build:
    """One kernel with the types and constants with which it is compiled ahead of time.

    Attributes:
        kernel: the name of the jit function in triton.py.
        types: argument -> Triton's word for its type ("*bf16", "i32"); constants excepted.
        constants: argument -> value, beside those that the launch table gives.
        aligned: arguments divisible by 16, as launchers see them in practice.
        launch: (operation, variant) of the launch table.
        targets: which targets it exists for; empty: all.
    """

    name: str
    kernel: str
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    launch: tuple[str, str]
    aligned: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    targets: Sequence[str] = ()
    quick: bool = False


def operations() -> list[str]:
    """The folders that hold cases."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/cases.py"))


def cases_of(operation: str) -> tuple[Case, ...]:
    """An operation's cases."""
    return tuple(import_module(f"{__package__}.{operation}.cases").CASES)


def builds_of(operation: str) -> tuple[Build, ...]:
    """An operation's builds."""
    return tuple(import_module(f"{__package__}.{operation}.cases").BUILDS)


def function_of(operation: str, name: str, *, reference: bool) -> Callable[..., Any]:
    """A function of reference.py or of triton.py."""
    kind = "reference" if reference else "triton"
    function: Callable[..., Any] = getattr(import_module(f"{__package__}.{operation}.{kind}"), name)
    return function
