"""One text decoder for all families: what differs is in its description.

Pre-norm blocks of attention and gated feed-forward, rotary positions, optional biases, optional
per-head q/k norms, optional sliding windows per layer, optional DeepStack (features added to the
media tokens after the first layers). Weights come by their Hugging Face names and are fused while
they are taken over.

Must not know: vision towers, prompts, blocks (that is attention's business).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from chiasm_worker.attention.base import AttentionLayer, AttentionStep
from chiasm_worker.layers.linear import Linear, fuse
from chiasm_worker.layers.mlp import GatedMLP, activation
from chiasm_worker.layers.norm import RMSNorm
from chiasm_worker.layers.rope import RotaryEmbedding, Rotation


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


@dataclass(frozen=True, slots=True)
class MediaRows:
    """Encoder output for the media tokens of one step.

    Attributes:
        rows: [num_media_tokens] int64, which rows of the batch are media tokens.
        embeddings: [num_media_tokens, hidden_size], put in place of word embeddings.
        deepstack: one [num_media_tokens, hidden_size] for each of the first layers.
    """

    rows: torch.Tensor
    embeddings: torch.Tensor
    deepstack: tuple[torch.Tensor, ...] = ()


class Weights:
    """A decoder's tensors by name; each is taken once, so that fusing holds no second copy."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def take(self, name: str) -> torch.Tensor:
        """The tensor of that name.

        Raises: ValueError when the checkpoint does not hold it.
        """
        if name not in self._tensors:
            raise ValueError(f"The checkpoint holds no tensor {name!r}, which this family needs.")
        return self._tensors.pop(name)

    def linear(self, name: str) -> Linear:
        """The projection of that name, with its bias if there is one."""
        return Linear(self.take(f"{name}.weight"), self._tensors.pop(f"{name}.bias", None))

    def check_all_taken(self) -> None:
        """Raise ValueError if the checkpoint holds tensors that the family has no use for."""
        if self._tensors:
            raise ValueError(
                f"The checkpoint holds {len(self._tensors)} tensors that this family does not "
                f"use, among them {sorted(self._tensors)[0]!r}; its answers would be wrong."
            )


class DecoderLayer:
    """One block: attention, then feed-forward, each behind a norm and added to its input."""

    def __init__(self, spec: DecoderSpec, index: int, weights: Weights) -> None:
        prefix = f"layers.{index}."
        attn = prefix + "self_attn."
        self._spec = spec
        self._input_norm = RMSNorm(weights.take(prefix + "input_layernorm.weight"), spec.norm_eps)
        self._post_norm = RMSNorm(
            weights.take(prefix + "post_attention_layernorm.weight"), spec.norm_eps
        )
        self._qkv = fuse([weights.linear(attn + f"{name}_proj") for name in "qkv"])
        self._o = weights.linear(attn + "o_proj")
        self._qk_norm = self._fused_qk_norm(spec, attn, weights) if spec.qk_norm else None
        self._mlp = GatedMLP(
            fuse([weights.linear(prefix + f"mlp.{name}_proj") for name in ("gate", "up")]),
            weights.linear(prefix + "mlp.down_proj"),
            activation(spec.activation),
        )
        self._layer = AttentionLayer(
            index=index, scale=spec.head_dim**-0.5, sliding_window=spec.sliding_windows[index]
        )

    @staticmethod
    def _fused_qk_norm(spec: DecoderSpec, attn: str, weights: Weights) -> RMSNorm:
        # q and k are adjacent heads of one tensor: one norm with a weight row per head.
        q = weights.take(attn + "q_norm.weight").expand(spec.num_heads, -1)
        k = weights.take(attn + "k_norm.weight").expand(spec.num_kv_heads, -1)
        return RMSNorm(torch.cat((q, k)), spec.norm_eps)

    def __call__(
        self, hidden: torch.Tensor, rotation: Rotation, attention: AttentionStep
    ) -> torch.Tensor:
        """Apply to hidden [num_tokens, hidden_size]."""
        spec = self._spec
        heads = self._qkv(self._input_norm(hidden)).view(hidden.shape[0], -1, spec.head_dim)
        num_qk = spec.num_heads + spec.num_kv_heads
        qk, v = heads[:, :num_qk], heads[:, num_qk:]
        if self._qk_norm is not None:
            qk = self._qk_norm(qk)
        qk = rotation.apply(qk)
        q = qk[:, : spec.num_heads]
        kv = torch.stack((qk[:, spec.num_heads :], v), dim=1)
        hidden = hidden + self._o(attention.forward(self._layer, q, kv))
        return hidden + self._mlp(self._post_norm(hidden))


class Decoder:
    """Token ids and positions in, logits out."""

    def __init__(self, spec: DecoderSpec, rope: RotaryEmbedding, weights: Weights) -> None:
        self.spec = spec
        self._rope = rope
        self._embedding = weights.take("embed_tokens.weight")
        self._layers = [DecoderLayer(spec, i, weights) for i in range(spec.num_layers)]
        self._norm = RMSNorm(weights.take("norm.weight"), spec.norm_eps)
        self._head = Linear(weights.take("lm_head.weight"))
        weights.check_all_taken()

    def forward(
        self,
        token_ids: torch.Tensor,
        position_ids: torch.Tensor,
        attention: AttentionStep,
        media: MediaRows | None = None,
    ) -> torch.Tensor:
        """The hidden states of one packed batch, [num_tokens, hidden_size], before the last norm.

        Args:
            token_ids: [num_tokens] int64.
            position_ids: [num_axes, num_tokens] int64.
        """
        hidden = F.embedding(token_ids, self._embedding)
        deepstack: Sequence[torch.Tensor] = ()
        if media is not None:
            hidden = hidden.index_copy(0, media.rows, media.embeddings)
            deepstack = media.deepstack
        rotation = self._rope.at(position_ids)
        for index, layer in enumerate(self._layers):
            hidden = layer(hidden, rotation, attention)
            if media is not None and index < len(deepstack):
                hidden.index_add_(0, media.rows, deepstack[index])
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """fp32 logits [num_rows, vocab_size] of hidden [num_rows, hidden_size]."""
        return self._head(self._norm(hidden)).float()
