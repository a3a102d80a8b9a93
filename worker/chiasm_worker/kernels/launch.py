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
# What is handed to Triton's launcher and not to the kernel.
OPTIONS = ("num_warps", "num_stages")


@functools.cache
def table() -> dict[str, dict[str, dict[str, Any]]]:
    """The whole table: operation -> variant -> numbers, and architectures' tables of numbers."""
    return tomllib.loads(TABLE.read_text())


@functools.cache
def configuration(operation: str, variant: str, architecture: str) -> dict[str, int]:
    """All numbers of one launch: tile sizes, num_warps, num_stages."""
    try:
        row = table()[operation][variant]
    except KeyError:
        raise ValueError(
            f"{TABLE.name} has no variant {variant!r} of {operation!r}; it has "
            f"{ {name: sorted(variants) for name, variants in table().items()} }."
        ) from None
    if architecture not in (*ARCHITECTURES, INTERPRETER):
        raise ValueError(
            f"{architecture!r} is no architecture of {TABLE.name}; it knows {ARCHITECTURES}."
        )
    common = {name: value for name, value in row.items() if not isinstance(value, dict)}
    return {**common, **row.get(architecture, {})}


@functools.cache
def architecture(device: torch.device) -> str:
    """The table's word for a device; the CPU's is the interpreter's.

    Raises: ValueError for a GPU that the kernels were not proved for.
    """
    if device.type == "cpu":
        return INTERPRETER
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        name = str(properties.gcnArchName).split(":")[0]
    else:
        # Within a major version the later ones run what the first one runs.
        name = {8: "sm_80", 9: "sm_90", 10: "sm_100"}.get(
            properties.major, f"sm_{properties.major}{properties.minor}"
        )
    if name not in ARCHITECTURES:
        raise ValueError(
            f"{properties.name} is a {name}; the kernels are proved for {ARCHITECTURES}."
        )
    return name
