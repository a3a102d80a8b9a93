"""Who computes attention and the decoder's operations, decided once a model, with the reason.

One choice for all of it: what is made of it (`make` here, layers/operations.py) never chooses by
itself. Operations that the kernels do not take in a model's shapes are torch's, said beside it.

Must not know: models, the scheduler. Never changes while a worker runs: which one it is names the
rounding class of everything in its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import torch
from chiasm_contract.config import Kernels

from chiasm_worker.attention.base import AttentionBackend
from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.kernels.launch import architecture
from chiasm_worker.kernels.paged_prefill.shape import tile_shape

# What the kernels were compiled and judged for.
MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True)
class Choice:
    """An implementation, and why it is this one.

    Attributes:
        exceptions: what torch computes all the same, with the reason, a sentence each.
    """

    name: Literal["torch", "triton"]
    reason: str
    exceptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join((f"{self.name}: {self.reason}", *self.exceptions))

    @property
    def numerics(self) -> str:
        """What the implementation calls its rounding class."""
        return ReferenceAttention.numerics if self.name == "torch" else "triton"


def choose(
    device: torch.device, dtype: torch.dtype, head_dim: int, group: int, asked: Kernels = "auto"
) -> Choice:
    """Triton on the GPUs that its kernels were proved for, torch everywhere else.

    Args:
        group: heads that share K and V.
        asked: what the configuration says of it.

    Raises: ValueError when Triton is asked for and cannot compute.
    """
    if asked == "torch":
        return Choice("torch", "the configuration asks for it")
    found = _best(device, dtype, head_dim, group)
    if asked == "triton" and found.name != "triton":
        raise ValueError(
            f"spec.engine.kernels (chiasm serve: --kernels) is triton, but "
            f"{found.reason.rstrip('.')}; set it to auto, and torch computes where the kernels "
            "cannot."
        )
    return found


def _best(device: torch.device, dtype: torch.dtype, head_dim: int, group: int) -> Choice:
    if device.type == "cpu":
        return Choice("torch", "Triton has no code for CPUs")
    if dtype not in (torch.bfloat16, torch.float16):
        return Choice("torch", f"the kernels compute in bf16 and fp16, the model in {dtype}")
    if head_dim > MAX_HEAD_DIM or head_dim % 2:
        return Choice("torch", f"heads have {head_dim}; kernels take even ones to {MAX_HEAD_DIM}")
    if find_spec("triton") is None:
        return Choice("torch", "Triton is not installed")
    try:
        name = architecture(device)
        tile_shape(dtype, head_dim, group, device)
    except ValueError as error:
        return Choice("torch", str(error))
    return Choice("triton", f"its kernels are proved for {name}")


def make(choice: Choice, kv: torch.Tensor, cross: torch.Tensor | None) -> AttentionBackend:
    """The chosen implementation over an arena's views."""
    if choice.name == "torch":
        return ReferenceAttention(kv, cross)
    # Importing it imports Triton, which is not everywhere.
    from chiasm_worker.attention.triton_backend import TritonAttention  # noqa: PLC0415

    return TritonAttention(kv, None, cross)
