"""How each kernel is launched on each architecture: read from launch.toml, never tuned at launch.

A row of the table is an operation's variant; it gives every number for all architectures, and the
ones in which an architecture differs. The interpreter has a row of its own only where tiles must be
small.

Must not know: kernels. Raises ValueError for what the table does not hold.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import torch

TABLE = Path(__file__).with_name("launch.toml")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")
INTERPRETER = "interpreter"
# What a CPU is launched as; the proofs put a GPU's name here to launch as that GPU does.
ON_CPU = INTERPRETER
# What is handed to Triton's launcher and not to the kernel; the last only where it is AMD's.
OPTIONS = ("num_warps", "num_stages", "matrix_instr_nonkdim")


# What a row says besides numbers.
_WORDS = ("like", "interpreter_only")


@functools.cache
def table() -> dict[str, dict[str, dict[str, Any]]]:
    """The whole table: operation -> variant -> numbers, and architectures' tables of numbers."""
    return tomllib.loads(TABLE.read_text())


def _chain(operation: str, variant: str) -> list[dict[str, Any]]:
    """The row of a variant behind the rows that it is like."""
    try:
        row = table()[operation][variant]
    except KeyError:
        raise ValueError(
            f"{TABLE.name} has no variant {variant!r} of {operation!r}; it has "
            f"{ {name: sorted(variants) for name, variants in table().items()} }."
        ) from None
    return [*(_chain(operation, row["like"]) if "like" in row else ()), row]


@functools.cache
def configuration(operation: str, variant: str, architecture: str) -> dict[str, int]:
    """All numbers of one launch: tile sizes, num_warps, num_stages."""
    if architecture not in (*ARCHITECTURES, INTERPRETER):
        raise ValueError(
            f"{architecture!r} is no architecture of {TABLE.name}; it knows {ARCHITECTURES}."
        )
    numbers: dict[str, int] = {}
    small: dict[str, int] = {}
    for row in _chain(operation, variant):
        if row.get("interpreter_only") and architecture != ON_CPU:
            raise ValueError(
                f"{operation} of {variant} is for tests on the interpreter, not for GPUs."
            )
        numbers |= {n: v for n, v in row.items() if isinstance(v, int) and n not in _WORDS}
        numbers |= row.get(architecture, {})
        small |= row.get(INTERPRETER, {})
    return numbers | small if architecture == INTERPRETER else numbers


def queries_of(num_rows: int, group: int) -> int:
    """Queries whose `group` heads that share K and V fit the rows of one program.

    Raises: ValueError when not even one does.
    """
    if group > num_rows:
        raise ValueError(f"{group} heads share K and V; a program has {num_rows} rows.")
    return num_rows // group


@functools.cache
def machine(device: torch.device) -> str:
    """What computes, as its vendor names its instructions: cpu, sm_89, gfx942."""
    if device.type == "cpu":
        return "cpu"
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


@functools.cache
def architecture(device: torch.device) -> str:
    """The table's word for a device; the CPU's is the interpreter's.

    Raises: ValueError for a GPU that the kernels were not proved for.
    """
    if device.type == "cpu":
        return ON_CPU
    name = machine(device)
    # Within a major version the later ones run what the first one runs.
    family = {"sm_8": "sm_80", "sm_9": "sm_90", "sm_10": "sm_100"}.get(name[:-1], name)
    if family not in ARCHITECTURES:
        raise ValueError(f"the GPU is a {name}; the kernels are proved for {ARCHITECTURES}.")
    return family
