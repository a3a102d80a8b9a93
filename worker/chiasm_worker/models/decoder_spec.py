"""What distinguishes one decoder from another, and the tensors that it is built from.

Must not know: how a decoder computes, vision towers, prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from chiasm_worker.attention.base import AttentionLayer
from chiasm_worker.layers.linear import Linear, QuantisedLinear, fuse
from chiasm_worker.layers.mlp import GatedMLP
from chiasm_worker.layers.norm import HeadRMSNorm, Norm
from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.mask import MaskRule


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """What distinguishes one decoder from another."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    activation: str
    qk_norm: bool
    # One entry per layer; 0 means that the layer attends to everything before.
    sliding_windows: tuple[int, ...]
    # Which tokens see those behind them, and how pictures are read.
    mask: MaskRule = MaskRule.CAUSAL
    spans_pass_window: bool = False
    # Norm weights are stored as their distance from 1.
    offset_norms: bool = False
    # Attention and feed-forward are normalised before they are added, too.
    post_norms: bool = False
    embedding_scale: float = 1.0
    # Scores are divided by the root of this; 0 means head_dim.
    query_scalar: float = 0.0
    # Caps on attention scores and on logits; 0 means none.
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    # The layers that attend to media items instead of the text.
    cross_layers: tuple[int, ...] = ()

    @property
    def num_kv_layers(self) -> int:
        """Layers that keep K and V of each token."""
        return self.num_layers - len(self.cross_layers)

    def attention_layer(self, index: int) -> AttentionLayer:
        """What attention needs to know of layer `index`."""
        is_cross = index in self.cross_layers
        same_kind = [i in self.cross_layers for i in range(index)].count(is_cross)
        return AttentionLayer(
            index=same_kind,
            scale=(self.query_scalar or self.head_dim) ** -0.5,
            sliding_window=self.sliding_windows[index],
            spans_pass_window=self.spans_pass_window,
            soft_cap=self.attention_soft_cap,
        )


class Weights:
    """A text model's tensors by name; each is taken once, so that fusing holds no second copy.

    They come from transformers' module, which has all of its tensors whatever the checkpoint held:
    `load_model` compares the two.

    Args:
        operations: who computes with them.
    """

    def __init__(self, tensors: dict[str, torch.Tensor], operations: Operations) -> None:
        self._tensors = tensors
        self._operations = operations

    def take(self, name: str) -> torch.Tensor:
        """The tensor of that name.

        Raises: ValueError when the text model has none.
        """
        if name not in self._tensors:
            raise ValueError(
                f"transformers' text model has no tensor {name!r}, which our decoder computes "
                "with; serve the model with another engine."
            )
        return self._tensors.pop(name)

    def linear(self, name: str) -> Linear | QuantisedLinear:
        """The projection of that name, with its bias if there is one."""
        weight, bias = self.take(f"{name}.weight"), self._tensors.pop(f"{name}.bias", None)
        return self._operations.linear(name, weight, bias)

    def norm(self, spec: DecoderSpec, name: str) -> Norm:
        """The norm of that name, of this decoder's kind."""
        weight = self.take(f"{name}.weight")
        return self._operations.norm(weight, spec.norm_eps, offset=spec.offset_norms)

    def head_norm(self, spec: DecoderSpec, prefix: str) -> HeadRMSNorm:
        """The norm of each head of q and k whose names begin with `prefix`."""
        q, k = (self.take(f"{prefix}{name}_norm.weight") for name in "qk")
        counts = (spec.num_heads, spec.num_kv_heads)
        return HeadRMSNorm(q, k, *counts, spec.norm_eps, offset=spec.offset_norms)

    def mlp(self, spec: DecoderSpec, prefix: str) -> GatedMLP:
        """The gated feed-forward of the layer whose names begin with `prefix`."""
        return GatedMLP(
            fuse([self.linear(prefix + f"mlp.{name}_proj") for name in ("gate", "up")]).packed(),
            self.linear(prefix + "mlp.down_proj").packed(),
            self._operations.gated(spec.activation),
        )

    def check_all_taken(self) -> None:
        """Raise ValueError if transformers' text model computes with more than our decoder does."""
        if self._tensors:
            raise ValueError(
                f"transformers' text model has {len(self._tensors)} tensors that our decoder does "
                f"not compute with, the first of them {min(self._tensors)!r}; its answers would be "
                "wrong. Serve the model with another engine."
            )
