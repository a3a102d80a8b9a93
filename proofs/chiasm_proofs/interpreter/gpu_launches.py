"""The interpreter with a GPU's launch configurations, and launches noted instead of run.

The interpreter has configurations of its own, with tiles small enough for tests. What they prove is
the algorithm; that it also holds with the tiles, stages and conversions that a GPU is launched with
is proved here, on the same cases.

Must not know: which kernels there are. Runs only in a process whose Triton interprets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from chiasm_worker.kernels import launch
from triton.runtime.interpreter import GridExecutor, InterpretedFunction

Launch = dict[str, Any]
_POINTERS = {
    torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64",
    torch.uint8: "u8", torch.int8: "i8", torch.int32: "i32", torch.int64: "i64",
}  # fmt: skip


@contextmanager
def launching_as(machine: str) -> Iterator[None]:
    """Within it the CPU's launches have the configurations of `machine`, a row of the table."""
    _be(machine)
    try:
        yield
    finally:
        _be(launch.INTERPRETER)


def _be(machine: str) -> None:
    launch.ON_CPU = machine
    launch.architecture.cache_clear()
    launch.configuration.cache_clear()


@contextmanager
def noting() -> Iterator[list[Launch]]:
    """Within it launches are noted, each kind once, and not run."""
    noted: list[Launch] = []
    run = InterpretedFunction.run

    def note(self: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        arguments = {**dict(zip(self.arg_names, given, strict=False)), **named}
        found = described(self.fn, arguments)
        if found not in noted:
            noted.append(found)

    InterpretedFunction.run = note
    try:
        yield noted
    finally:
        InterpretedFunction.run = run


def described(function: Any, arguments: dict[str, Any]) -> Launch:
    """What Triton's launcher makes of a launch: types, constants, what divides by 16, options.

    As triton.runtime.jit does it: an integer is 32 bits wide where it fits, 1 is a constant, and
    16 is asked of integers and of pointers.
    """
    types, constants, aligned = {}, {}, []
    constexprs = GridExecutor(function, list(arguments), (1,)).constexprs
    for name, value in arguments.items():
        if name in launch.OPTIONS:
            continue
        if isinstance(value, torch.Tensor):
            types[name] = f"*{_POINTERS[value.dtype]}"
            if value.data_ptr() % 16 == 0:
                aligned.append(name)
        elif name in constexprs or (isinstance(value, int) and value == 1):
            constants[name] = value
        elif isinstance(value, int):
            types[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0:
                aligned.append(name)
        else:
            types[name] = "fp32"
    return {
        "kernel": function.__name__,
        "module": function.__module__,
        "types": types,
        "constants": constants,
        "aligned": aligned,
        "options": {name: arguments[name] for name in launch.OPTIONS if name in arguments},
    }
