"""The decoder's operations as layers and attention call them: Triton's beside torch's.

Kernels are held to their references elsewhere; here it is the wiring: which weight, which form,
which heads, what is added to what.

Must not know: models. Runs in a process whose Triton interprets, or on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from chiasm_worker.attention.base import AttentionLayer, SequenceChunk
from chiasm_worker.attention.heads import HeadNorm, Rotation
from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.attention.triton_backend import TritonAttention
from chiasm_worker.layers.mlp import ACTIVATIONS
from chiasm_worker.layers.norm import HeadRMSNorm
from chiasm_worker.layers.operations import Operations, TorchOperations
from chiasm_worker.layers.rope import RotaryEmbedding, sectioned_axes
from chiasm_worker.layers.triton_operations import TritonOperations

# Sums in another order; and in bf16 roundings of 2^-8 that may fall to the other side: two of a
# number of its own size, and behind attention those of weights and values up to 4.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2}
ATTENDED = {torch.float32: 1e-5, torch.bfloat16: 3.2e-2}
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, BLOCK = 4, 2, 16, 4
# A prompt, a decoding request, a chunk behind cached tokens, another decoding request.
CHUNKS = ((0, 5), (6, 1), (3, 4), (2, 1))


def faults(seed: int, device: torch.device) -> list[str]:
    """In what Triton's operations are not torch's; nothing where they are."""
    torch.manual_seed(seed)
    # Attention in fp32 is for the interpreter.
    dtypes = [torch.bfloat16] if device.type == "cuda" else list(TOLERANCE)
    with device:
        return [
            fault
            for dtype in dtypes
            for fault in (*_norms(dtype), *_products(dtype), *_steps(dtype))
        ]


def _differ(
    ours: torch.Tensor, torchs: torch.Tensor, tolerance: Mapping[torch.dtype, float] = TOLERANCE
) -> bool:
    allowed = tolerance[torchs.dtype]
    return ours.dtype != torchs.dtype or not torch.allclose(ours, torchs, allowed, allowed)


def _both(dtype: torch.dtype) -> tuple[Operations, Operations]:
    return TritonOperations(dtype), TorchOperations()


def _norms(dtype: torch.dtype) -> Iterator[str]:
    for offset in (False, True):
        weight = torch.randn(40).to(dtype)
        ours, torchs = (o.norm(weight, 1e-6, offset=offset) for o in _both(dtype))
        x, residual = (torch.randn(7, 40).to(dtype) for _ in range(2))
        heads = torch.randn(3, 5, 40).to(dtype)
        if _differ(ours(heads), torchs(heads)):
            yield f"a norm in {dtype}, offset {offset}, of heads"
        for given in (x, None):
            (normed, summed), wanted = ours.add(given, residual), torchs.add(given, residual)
            if not torch.equal(summed, wanted[1]) or _differ(normed, wanted[0]):
                yield f"a norm in {dtype}, offset {offset}, with a sum {given is not None}"


def _products(dtype: torch.dtype) -> Iterator[str]:
    gate_up = (3 * torch.randn(5, 66)).to(dtype)
    for name in ACTIVATIONS:
        ours, torchs = (o.gated(name)(gate_up) for o in _both(dtype))
        if _differ(ours, torchs):
            yield f"the product with {name} in {dtype}"


def _steps(dtype: torch.dtype) -> Iterator[str]:
    num_tokens = sum(new for _, new in CHUNKS)
    rope = RotaryEmbedding(torch.rand(HEAD_DIM // 2), sectioned_axes([4, 2, 2]), 1.0, dtype)
    rotation = rope.at(torch.randint(0, 99, (3, num_tokens)))
    heads = torch.randn(num_tokens, NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM).to(dtype)
    q, k = torch.randn(2, HEAD_DIM).to(dtype).unbind()
    counts = (NUM_HEADS, NUM_KV_HEADS)
    norms: dict[str, HeadNorm | None] = {
        "no": None,
        "a plain": HeadRMSNorm(q, k, *counts, 1e-6, offset=False),
        "Gemma's": HeadRMSNorm(q, k, *counts, 1e-6, offset=True),
    }
    for name, norm in norms.items():
        if fault := _step_fault(heads, rotation, norm):
            yield f"{fault} in {dtype}, with {name} norm"
    if fault := _step_fault(heads, Rotation.none(heads), None):
        yield f"{fault} in {dtype}, without a rotation"


def _step_fault(heads: torch.Tensor, rotation: Rotation, norm: HeadNorm | None) -> str | None:
    arena = torch.randn(16, 2, 2, BLOCK, NUM_KV_HEADS, HEAD_DIM).to(heads.dtype)
    other = arena.clone()
    free = iter(torch.randperm(16).tolist())
    chunks = [SequenceChunk(c, n, [next(free) for _ in range(-(-(c + n) // BLOCK))])
              for c, n in CHUNKS]  # fmt: skip
    layer = AttentionLayer(1, HEAD_DIM**-0.5)
    torchs = ReferenceAttention(arena).begin(chunks).forward(layer, heads, rotation, norm)
    ours = TritonAttention(other).begin(chunks).forward(layer, heads, rotation, norm)
    if _differ(other, arena):
        return "other K and V are written"
    return "attention makes other rows" if _differ(ours, torchs, ATTENDED) else None
