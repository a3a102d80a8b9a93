"""What a compiled kernel takes: registers, spills, shared memory, load width, instructions.

Read from the binary itself: cuobjdump's listing for NVIDIA, the assembly's notes for AMD.

Must not know: kernels, limits. Pure, but for the disassembler that it runs.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from triton.backends import nvidia

from chiasm_proofs.compiler.build import Binary
from chiasm_proofs.compiler.targets import Target

CUOBJDUMP = Path(str(nvidia.__file__)).parent / "bin" / "cuobjdump"
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,6})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
_MATRIX = re.compile(r"HMMA|HGMMA|QGMMA|QMMA|IMMA|IGMMA|UTC\w*MMA")
_GLOBAL_LOAD = re.compile(r"(?:LDG|LDGSTS)\.E\S*")
_WIDTH = re.compile(r"\.(256|128|64|U8|U16|S8|S16)\b")
_AMD_WIDTHS = {"dwordx4": 128, "dwordx3": 96, "dwordx2": 64, "dword": 32, "ushort": 16, "ubyte": 8}


@dataclass(frozen=True)
class Instruction:
    """One line of a disassembly."""

    address: int
    name: str
    operands: str

    @property
    def is_matrix(self) -> bool:
        """Whether it runs on the tensor cores."""
        return _MATRIX.match(self.name) is not None


@dataclass(frozen=True)
class Resources:
    """What one build takes on one target.

    Attributes:
        occupancy: share of the SM's warps (NVIDIA) or of 8 waves a SIMD (AMD) that fit at once.
        load_bits: the widest load from global memory; 0 where there is none.
        matrix_ops: matrix instructions by kind.
        slow_conversions: F2F and I2F, which run at a fraction of the rate.
    """

    registers: int
    spills: int
    shared_bytes: int
    num_warps: int
    occupancy: float
    load_bits: int
    matrix_ops: dict[str, int]
    slow_conversions: int
    instructions: int


def _cuobjdump(code: bytes, *arguments: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [str(CUOBJDUMP), *arguments, file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disassemble(code: bytes) -> list[Instruction]:
    """The instructions of a cubin."""
    listing = _cuobjdump(code, "-sass")
    return [Instruction(int(a, 16), name, rest) for a, name, rest in _INSTRUCTION.findall(listing)]


def occupancy(registers: int, shared_bytes: int, num_warps: int, target: Target) -> float:
    """Share of an SM's warps that run at once; 8 warps of 128 registers on sm_90: 0.25."""
    # Registers are handed out 256 at a time to each warp.
    per_warp = -(-registers * 32 // 256) * 256
    blocks = min(
        target.sm_registers // per_warp // num_warps if per_warp else target.sm_blocks,
        target.sm_shared_bytes // (shared_bytes + target.reserved_bytes),
        target.sm_warps // num_warps,
        target.sm_blocks,
    )
    return round(blocks * num_warps / target.sm_warps, 3)


def read(binary: Binary, target: Target) -> Resources:
    """What a binary takes."""
    return _nvidia(binary, target) if target.is_nvidia else _amd(binary)


def load_bits(instructions: list[Instruction]) -> int:
    """The widest global load: LDG, LDGSTS, or TMA, which counts as 128."""
    widest = 0
    for instruction in instructions:
        if instruction.name.startswith(("UTMALDG", "UBLKCP")):
            widest = max(widest, 128)
        elif _GLOBAL_LOAD.match(instruction.name):
            width = _WIDTH.search(instruction.name)
            said = width[1] if width else "32"
            widest = max(widest, int(said.lstrip("US")))
    return widest


def _nvidia(binary: Binary, target: Target) -> Resources:
    usage = re.search(r"REG:(\d+)", _cuobjdump(binary.code, "-res-usage"))
    if usage is None:
        raise ValueError("cuobjdump says nothing of registers; its format has changed.")
    instructions = disassemble(binary.code)
    names = Counter(i.name.split(".")[0] for i in instructions)
    return Resources(
        registers=int(usage[1]),
        spills=names["LDL"] + names["STL"],
        shared_bytes=binary.shared_bytes,
        num_warps=binary.num_warps,
        occupancy=occupancy(int(usage[1]), binary.shared_bytes, binary.num_warps, target),
        load_bits=load_bits(instructions),
        matrix_ops=dict(Counter(i.name.split(".")[0] for i in instructions if i.is_matrix)),
        slow_conversions=names["F2F"] + names["I2F"],
        instructions=len(instructions),
    )


def _amd(binary: Binary) -> Resources:
    text = binary.code.decode()

    def note(name: str) -> int:
        found = re.search(rf"{name}:?\s+(\d+)", text)
        if found is None:
            raise ValueError(f"The assembly says nothing of {name}; its format has changed.")
        return int(found[1])

    matrix = Counter(re.findall(r"^\s+(v_mfma_\w+)", text, re.MULTILINE))
    loads = re.findall(r"^\s+(?:global|buffer|flat)_load_(\w+)", text, re.MULTILINE)
    widths = [_AMD_WIDTHS[kind] for kind in loads if kind in _AMD_WIDTHS]
    return Resources(
        registers=note(r"\.vgpr_count"),
        spills=note(r"\.vgpr_spill_count") + note(r"\.sgpr_spill_count"),
        shared_bytes=binary.shared_bytes,
        num_warps=binary.num_warps,
        occupancy=round(note("; Occupancy") / 8, 3),
        load_bits=max(widths, default=0),
        matrix_ops=dict(matrix),
        slow_conversions=0,
        instructions=len(re.findall(r"^\s+[vsdgb]\w*_\w+", text, re.MULTILINE)),
    )
