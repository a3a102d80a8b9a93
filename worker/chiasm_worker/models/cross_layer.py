"""A decoder layer whose keys and values come from media items: gated, with norms on q and k.

It is computed for the rows of requests that have media; others pass it by unchanged. A row that
sees no item keeps its feed-forward's output to itself, as in transformers.

Must not know: vision towers, blocks.
"""

from __future__ import annotations

import torch

from chiasm_worker.attention.base import AttentionStep
from chiasm_worker.attention.heads import Rotation
from chiasm_worker.models.decoder_spec import DecoderSpec, Weights


def added(hidden: torch.Tensor, fed: torch.Tensor | None) -> torch.Tensor:
    """`hidden` with what a layer left to be added."""
    return hidden if fed is None else hidden + fed


class CrossLayer:
    """One block: cross-attention, then feed-forward, each gated and added to its input."""

    def __init__(self, spec: DecoderSpec, index: int, weights: Weights) -> None:
        prefix = f"layers.{index}."
        attn = prefix + "cross_attn."
        self._head_dim = spec.head_dim
        self._input_norm = weights.norm(spec, prefix + "input_layernorm")
        self._mlp_norm = weights.norm(spec, prefix + "post_attention_layernorm")
        self._q, self._k, self._v, self._o = (
            weights.linear(attn + f"{n}_proj").packed() for n in "qkvo"
        )
        self._q_norm, self._k_norm = (weights.norm(spec, attn + f"{n}_norm") for n in "qk")
        self._mlp = weights.mlp(spec, prefix)
        self._attention_gate = weights.take(prefix + "cross_attn_attn_gate").tanh()
        self._mlp_gate = weights.take(prefix + "cross_attn_mlp_gate").tanh()
        self._layer = spec.attention_layer(index)

    def kv(self, states: torch.Tensor) -> torch.Tensor:
        """[num_vectors, 2, num_kv_heads, head_dim] of states [num_vectors, hidden_size]."""
        num_vectors = states.shape[0]
        k = self._k_norm(self._k(states).view(num_vectors, -1, self._head_dim))
        return torch.stack((k, self._v(states).view(num_vectors, -1, self._head_dim)), dim=1)

    def __call__(
        self,
        hidden: torch.Tensor,
        fed: torch.Tensor | None,
        rotation: Rotation,
        attention: AttentionStep,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply to hidden [num_tokens, hidden_size]; positions do not matter here.

        Args, Returns: as in DecoderLayer.
        """
        rows = attention.cross_rows
        if rows is None:
            return hidden, fed
        hidden = added(hidden, fed)
        part = hidden[rows.index]
        q = self._q_norm(self._q(self._input_norm(part)).view(part.shape[0], -1, self._head_dim))
        attended = self._attention_gate * self._o(attention.cross(self._layer, q))
        normed, part = self._mlp_norm.add(attended, part)
        part = part + self._mlp_gate * (self._mlp(normed) * rows.sees)
        return hidden.index_copy(0, rows.index, part), None
