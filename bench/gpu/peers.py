"""Others' ways to compute what a kernel computes, from the same arguments.

Each makes what it needs ready (K and V gathered, tables in its own form) before the clock starts,
and gives a call that does nothing else. PyTorch is always there; FlashInfer and FlashAttention
where they are installed and take the arguments.

Must not know: clocks, our kernels. Runs on any device but for the two libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from chiasm_worker.kernels.case import Inputs, function_of
from chiasm_worker.kernels.codes import decode
from chiasm_worker.kernels.quantised_linear.packed import dequantise

Launch = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Peer:
    """One other implementation.

    Attributes:
        prepare: the arguments of ours -> a call; None where it does not compute this.
        package: what must be installed; empty: PyTorch alone.
    """

    name: str
    prepare: Callable[[Inputs], Launch | None]
    package: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it can be asked on this machine."""
        return not self.package or find_spec(self.package) is not None


def _layers(operation: str, function: str) -> Callable[[Inputs], Launch]:
    """PyTorch's operations one after the other: the plain reference."""
    reference = function_of(operation, function, reference=True)

    def prepare(inputs: Inputs) -> Launch:
        def launch() -> torch.Tensor:
            result = reference(**inputs)
            first: torch.Tensor = result[0] if isinstance(result, tuple) else result
            return first

        return launch

    return prepare


def _rms_norm(inputs: Inputs) -> Launch:
    x, weight, eps = inputs["x"], inputs["weight"], inputs["eps"]
    residual = inputs.get("residual")

    def launch() -> torch.Tensor:
        summed = x if residual is None else x + residual
        return F.rms_norm(summed, weight.shape, weight, eps)

    return launch


def _layer_norm(inputs: Inputs) -> Launch:
    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
    return lambda: F.layer_norm(x, weight.shape, weight, bias, inputs["eps"])


def gathered(inputs: Inputs, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor] | None:
    """K and V [num_sequences, num_kv_heads, length, head_dim]; None where lengths differ."""
    lens, table, kv = inputs["lens"], inputs["block_table"], inputs["kv"]
    if len(lens) == 0 or int(lens.min()) != int(lens.max()):
        return None
    length = int(lens[0])
    ids = table[:, : -(-length // kv.shape[2])].long()
    scales = inputs.get("scales")
    numbers = decode(kv[ids], None if scales is None else scales[ids]).to(dtype)
    # [sequences, used, 2, block_size, heads, dim] -> [2, sequences, heads, tokens, dim]
    both = numbers.permute(2, 0, 4, 1, 3, 5).flatten(3, 4)[..., :length, :]
    k, v = both.contiguous()
    return k, v


def _sdpa_decode(inputs: Inputs) -> Launch | None:
    q, queries = inputs["q"], inputs["max_queries"]
    both = gathered(inputs, q.dtype)
    if both is None or inputs["window"] or inputs["soft_cap"]:
        return None
    k, v = both
    length = k.shape[2]
    packed = q.view(len(k), queries, *q.shape[1:]).transpose(1, 2)
    place = torch.arange(length, device=q.device)
    mask = place <= (length - queries + torch.arange(queries, device=q.device))[:, None]
    return lambda: _attended(packed, k, v, None if queries == 1 else mask, inputs["scale"])


def _attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """[tokens, num_heads, head_dim] of q [sequences, num_heads, queries, head_dim]."""
    out = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1)


def _with_lens(inputs: Inputs) -> Inputs:
    """A prompt's length beside the rest, which prefill reads from its tiles."""
    return {**inputs, "lens": inputs["tiles"][:1, 7]}


def _sdpa_prefill(inputs: Inputs) -> Launch | None:
    q = inputs["q"]
    both = gathered(_with_lens(inputs), q.dtype) if len(inputs["block_table"]) == 1 else None
    if both is None or inputs["soft_cap"]:
        return None
    k, v = both
    packed, scale = q.transpose(0, 1)[None], inputs["scale"]
    low, high = inputs["row_low"], inputs["row_high"]
    place = torch.arange(k.shape[2], device=q.device)
    if len(q) == len(place) and not bool(low.any()) and bool((high == place).all()):
        return lambda: F.scaled_dot_product_attention(
            packed, k, v, is_causal=True, scale=scale, enable_gqa=True
        )[0].transpose(0, 1)
    mask = (place >= low[:, None]) & (place <= high[:, None])
    everything = bool(mask.all())
    return lambda: _attended(packed, k, v, None if everything else mask, scale)


def _sdpa_cross(inputs: Inputs) -> Launch | None:
    """Where every item is read by equally many rows, and each row reads one item."""
    entries = torch.cat((inputs["few"], inputs["many"]))
    num_items, q = len(inputs["block_table"]), inputs["q"]
    ends = [int(entries[entries[:, 0] == i, 4].max()) for i in range(num_items)]
    lens = torch.tensor(ends, dtype=torch.int32, device=q.device)
    both = gathered({**inputs, "lens": lens}, q.dtype)
    if both is None or len(q) % num_items:
        return None
    k, v = both
    packed = q.view(num_items, -1, *q.shape[1:]).transpose(1, 2)
    return lambda: _attended(packed, k, v, None, inputs["scale"])


def _sdpa_slots(inputs: Inputs) -> Launch | None:
    slots, kv, starts = inputs["slots"], inputs["kv"], inputs["starts"]
    counts = starts.diff()
    if len(counts) == 0 or int(counts.min()) != int(counts.max()):
        return None
    # [items, tokens, 2, heads, dim] -> [2, items, heads, tokens, dim]
    k, v = kv.view(len(counts), -1, *kv.shape[1:]).permute(2, 0, 3, 1, 4).contiguous()
    q = slots.transpose(0, 1).expand(len(counts), -1, -1, -1)
    scale = inputs["scale"]
    return lambda: F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2)


def _blocks(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """FlashInfer's table: where each sequence's blocks begin, the blocks, tokens in the last."""
    size, lens = inputs["kv"].shape[2], inputs["lens"].long()
    counts = (lens + size - 1) // size
    starts = F.pad(counts.cumsum(0), (1, 0)).int()
    rows = zip(inputs["block_table"], counts.tolist(), strict=True)
    ids = torch.cat([row[:count] for row, count in rows]).int()
    return starts, ids, (lens - (counts - 1) * size).int()


def _flashinfer_decode(inputs: Inputs) -> Launch | None:
    q, kv = inputs["q"], inputs["kv"]
    if inputs["max_queries"] > 1 or "scales" in inputs:
        return None
    room = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)
    decoding = import_module("flashinfer").BatchDecodeWithPagedKVCacheWrapper(room, "NHD")
    decoding.plan(
        *_blocks(inputs), q.shape[1], kv.shape[3], kv.shape[4], kv.shape[2],
        window_left=inputs["window"] - 1, logits_soft_cap=inputs["soft_cap"] or None,
        q_data_type=q.dtype, kv_data_type=kv.dtype, sm_scale=inputs["scale"],
    )  # fmt: skip
    return lambda: decoding.run(q, kv)


def _flashinfer_prefill(inputs: Inputs) -> Launch | None:
    q, kv = inputs["q"], inputs["kv"]
    if not _is_causal(inputs) or "scales" in inputs:
        return None
    room = torch.empty(256 << 20, dtype=torch.uint8, device=q.device)
    prefill = import_module("flashinfer").BatchPrefillWithPagedKVCacheWrapper(room, "NHD")
    prefill.plan(
        torch.tensor([0, len(q)], dtype=torch.int32, device=q.device),
        *_blocks(_with_lens(inputs)), q.shape[1], kv.shape[3], kv.shape[4], kv.shape[2],
        causal=True, sm_scale=inputs["scale"], q_data_type=q.dtype, kv_data_type=kv.dtype,
    )  # fmt: skip
    return lambda: prefill.run(q, kv)


def _is_causal(inputs: Inputs) -> bool:
    """Whether one prompt's new tokens see all before them and nothing else."""
    low, high = inputs["row_low"], inputs["row_high"]
    if len(inputs["block_table"]) != 1 or bool(low.any()):
        return False
    length = int(inputs["tiles"][0, 7])
    return bool((high == torch.arange(length - len(high), length, device=high.device)).all())


def _flash_attention(inputs: Inputs) -> Launch | None:
    """Of both decode and prefill: the last queries of sequences in blocks."""
    if "scales" in inputs or inputs["soft_cap"]:
        return None
    if "tiles" in inputs:
        if not _is_causal(inputs):
            return None
        inputs = {**_with_lens(inputs), "max_queries": len(inputs["q"]), "window": 0}
    q, (k, v) = inputs["q"], inputs["kv"].unbind(1)
    packed = q.view(-1, inputs["max_queries"], *q.shape[1:])
    table, lens = inputs["block_table"].contiguous(), inputs["lens"].contiguous()
    window = (inputs["window"] - 1, 0) if inputs["window"] else (-1, -1)
    attend = import_module("flash_attn").flash_attn_with_kvcache

    def launch() -> torch.Tensor:
        out: torch.Tensor = attend(
            packed, k, v, cache_seqlens=lens, block_table=table, causal=True,
            softmax_scale=inputs["scale"], window_size=window,
        )  # fmt: skip
        return out.flatten(0, 1)

    return launch


_SDPA = "torch scaled_dot_product_attention, K and V contiguous"


def _dequantised(inputs: Inputs) -> Launch:
    x, bias = inputs["x"], inputs.get("bias")
    weight = dequantise(inputs["weight"]).to(x.dtype)
    return lambda: F.linear(x, weight, bias)


PEERS: dict[str, Sequence[Peer]] = {
    "rms_norm": (Peer("torch add, rms_norm", _rms_norm),),
    "layer_norm": (Peer("torch layer_norm", _layer_norm),),
    "activation_mul": (Peer("torch layers", _layers("activation", "activation_mul")),),
    "softmax": (Peer("torch softmax", _layers("softmax", "softmax")),),
    "rope_write": (Peer("torch layers", _layers("rope_write", "rope_write")),),
    "row_copy": (Peer("torch indexing", _layers("row_copy", "row_copy")),),
    "window_mean": (Peer("torch layers", _layers("window_mean", "window_mean")),),
    "quantised_linear": (Peer("torch linear, bf16 weights", _dequantised),),
    "redundancy": (Peer("torch layers, fp64", _layers("redundancy", "redundancy")),),
    "soft_slots": (Peer(_SDPA, _sdpa_slots),),
    "cross_attention": (Peer(_SDPA, _sdpa_cross),),
    "paged_decode": (
        Peer(_SDPA, _sdpa_decode),
        Peer("FlashInfer", _flashinfer_decode, "flashinfer"),
        Peer("FlashAttention", _flash_attention, "flash_attn"),
    ),
    "paged_prefill": (
        Peer(_SDPA, _sdpa_prefill),
        Peer("FlashInfer", _flashinfer_prefill, "flashinfer"),
        Peer("FlashAttention", _flash_attention, "flash_attn"),
    ),
}
