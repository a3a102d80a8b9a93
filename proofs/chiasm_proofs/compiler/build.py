"""Compiles a kernel ahead of time for a GPU that is not here.

Triton's wheel brings ptxas, the disassemblers and AMD's assembler; no driver and no CUDA is needed.
Arguments that launchers see divisible by 16 must be said to be: without that loads are narrow, and
what is read from the binary misleads.

Must not know: limits. Runs only in a process whose Triton compiles.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import triton
from chiasm_worker.kernels.case import Build
from chiasm_worker.kernels.launch import OPTIONS, configuration
from triton.compiler import ASTSource

from chiasm_proofs.compiler.targets import Target


@dataclass(frozen=True)
class Binary:
    """What was compiled.

    Attributes:
        code: the cubin of NVIDIA, the assembly of AMD.
    """

    code: bytes
    shared_bytes: int
    num_warps: int
    seconds: float


def compile_for(operation: str, build: Build, target: Target) -> Binary:
    """Compile one build. Raises: whatever Triton raises for a kernel it refuses."""
    module = import_module(f"chiasm_worker.kernels.{operation}.triton")
    kernel = getattr(module, build.kernel)
    numbers = configuration(*build.launch, target.name)
    options = {name: value for name, value in numbers.items() if name in OPTIONS}
    given = {**build.constants, **numbers}
    constants = {n: v for n, v in given.items() if n in kernel.arg_names}
    # A name with a target behind it holds for that target only.
    for name in list(constants):
        if isinstance(constants[name], dict):
            constants[name] = constants[name].get(target.name, constants[name]["default"])
    missing = [n for n in kernel.arg_names if n not in constants and n not in build.types]
    if missing:
        raise ValueError(f"The build {build.name!r} of {operation} says nothing of {missing}.")
    return compiled_as(kernel, build.types, constants, build.aligned, options, target)


def compile_launch(launch: Mapping[str, Any], target: Target) -> Binary:
    """Compile what a launch was noted as (interpreter/machine.py); raises as `compile_for`."""
    kernel = getattr(import_module(launch["module"]), launch["kernel"])
    return compiled_as(
        kernel, launch["types"], launch["constants"], launch["aligned"], launch["options"], target
    )


def compiled_as(
    kernel: Any,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    aligned: Sequence[str],
    options: Mapping[str, Any],
    target: Target,
) -> Binary:
    """Compile a kernel with arguments of those types and constants; raises as `compile_for`."""
    signature = {n: "constexpr" if n in constants else types[n] for n in kernel.arg_names}
    attributes: dict[tuple[int, ...], list[Any]] = {
        (kernel.arg_names.index(n),): [["tt.divisibility", 16]]
        for n in aligned
        if n not in constants
    }
    started = time.perf_counter()
    source = ASTSource(kernel, signature, constexprs=dict(constants), attrs=attributes)
    compiled = triton.compile(source, target=target.triton, options=dict(options))
    code = compiled.asm["cubin"] if target.is_nvidia else compiled.asm["amdgcn"].encode()
    return Binary(
        code,
        compiled.metadata.shared,
        compiled.metadata.num_warps,
        time.perf_counter() - started,
    )
