"""The five targets that kernels are compiled for, and what each has room for.

Must not know: kernels. Numbers are the vendors' (CUDA occupancy tables; AMD's ISA guides).
"""

from __future__ import annotations

from dataclasses import dataclass

from triton.backends.compiler import GPUTarget


@dataclass(frozen=True)
class Target:
    """One architecture.

    Attributes:
        block_shared_bytes: shared memory (LDS) that one block may have.
        sm_shared_bytes: what an SM has for all its blocks; `reserved_bytes` of it for each block.
        sm_registers: 32-bit registers of an SM; 0 where occupancy is read from the compiler (AMD).
        bytes_per_clock: what memory delivers to one SM per clock at the measured copy rate; 0 where
            nothing is known.
    """

    name: str
    triton: GPUTarget
    block_shared_bytes: int
    sm_shared_bytes: int = 0
    reserved_bytes: int = 0
    sm_registers: int = 0
    sm_warps: int = 0
    sm_blocks: int = 0
    bytes_per_clock: float = 0.0

    @property
    def is_nvidia(self) -> bool:
        """Whether it is compiled by ptxas."""
        return bool(self.triton.backend == "cuda")


_KIB = 1024
_SM = {"reserved_bytes": _KIB, "sm_registers": 65536, "sm_warps": 64, "sm_blocks": 32}
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_80", GPUTarget("cuda", 80, 32), 163 * _KIB, 164 * _KIB, **_SM),
        # H200: 4.3 TB/s copied, 132 SMs at 1.98 GHz.
        Target(
            "sm_90",
            GPUTarget("cuda", 90, 32),
            227 * _KIB,
            228 * _KIB,
            **_SM,
            bytes_per_clock=4.3e12 / 132 / 1.98e9,
        ),
        Target("sm_100", GPUTarget("cuda", 100, 32), 227 * _KIB, 228 * _KIB, **_SM),
        Target("gfx942", GPUTarget("hip", "gfx942", 64), 64 * _KIB),
        Target("gfx950", GPUTarget("hip", "gfx950", 64), 160 * _KIB),
    )
}
