"""One text decoder for all families: what differs is in its description.

Pre-norm blocks of attention and gated feed-forward, rotary positions, optional biases, optional
per-head q/k norms, optional sliding windows per layer with rotary positions of their own, optional
norms behind attention and feed-forward, soft caps, cross-attention layers (cross_layer.py),
optional DeepStack (features added to the media tokens after the first layers). Weights come by
their Hugging Face names and are fused while they are taken over.

Must not know: vision towers, prompts, blocks (that is attention's business).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

from chiasm_worker.attention.base import AttentionStep
from chiasm_worker.attention.heads import Rotation
from chiasm_worker.layers.linear import Linear, fuse
from chiasm_worker.layers.norm import Norm
from chiasm_worker.layers.rope import RotaryEmbedding
from chiasm_worker.models.cross_layer import CrossLayer, added
from chiasm_worker.models.decoder_spec import DecoderSpec, Weights

# Raise it with every change after which the same model computes other numbers, in this module or
# in what it calls (layers, attention, compressed or pooled features): vectors of before and after
# must not meet in one cache. The tests against transformers cannot tell, because they allow what
# rounding does.
NUMERICS_VERSION = 1


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


class DecoderLayer:
    """One block: attention, then feed-forward, each behind a norm and added to its input.

    What feed-forward makes is left to the next norm to add: the two are one launch on a GPU.
    """

    def __init__(self, spec: DecoderSpec, index: int, weights: Weights) -> None:
        prefix = f"layers.{index}."
        attn = prefix + "self_attn."
        self._head_dim = spec.head_dim
        self._input_norm = weights.norm(spec, prefix + "input_layernorm")
        self._after_attention: Norm | None = None
        self._after_mlp: Norm | None = None
        if spec.post_norms:
            self._after_attention = weights.norm(spec, prefix + "post_attention_layernorm")
            self._mlp_norm = weights.norm(spec, prefix + "pre_feedforward_layernorm")
            self._after_mlp = weights.norm(spec, prefix + "post_feedforward_layernorm")
        else:
            self._mlp_norm = weights.norm(spec, prefix + "post_attention_layernorm")
        self._qkv = fuse([weights.linear(attn + f"{name}_proj") for name in "qkv"]).packed()
        self._o = weights.linear(attn + "o_proj").packed()
        self._qk_norm = weights.head_norm(spec, attn) if spec.qk_norm else None
        self._mlp = weights.mlp(spec, prefix)
        self._layer = spec.attention_layer(index)

    def __call__(
        self,
        hidden: torch.Tensor,
        fed: torch.Tensor | None,
        rotation: Rotation,
        attention: AttentionStep,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Apply to hidden [num_tokens, hidden_size].

        Args:
            fed: what is still to be added to `hidden`; None: nothing.

        Returns: (hidden, fed) for the next layer.
        """
        normed, hidden = self._input_norm.add(fed, hidden)
        heads = self._qkv(normed).view(hidden.shape[0], -1, self._head_dim)
        attended = self._o(attention.forward(self._layer, heads, rotation, self._qk_norm))
        if self._after_attention is not None:
            attended = self._after_attention(attended)
        normed, hidden = self._mlp_norm.add(attended, hidden)
        fed = self._mlp(normed)
        if self._after_mlp is not None:
            fed = self._after_mlp(fed)
        return hidden, fed


class Decoder:
    """Token ids and positions in, logits out.

    Args:
        rope: the rotary positions of all layers, or of those without a window.
        local_rope: those of the layers with a sliding window, where they differ.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        rope: RotaryEmbedding,
        weights: Weights,
        local_rope: RotaryEmbedding | None = None,
    ) -> None:
        self.spec = spec
        self._rope = rope
        self._local_rope = local_rope
        self._embedding = weights.take("embed_tokens.weight")
        # Rounded to the model's type, as in transformers.
        scale = torch.tensor(spec.embedding_scale, dtype=self._embedding.dtype)
        self._embedding_scale = float(scale)
        self._layers = [
            (CrossLayer if i in spec.cross_layers else DecoderLayer)(spec, i, weights)
            for i in range(spec.num_layers)
        ]
        self._norm = weights.norm(spec, "norm")
        self._head = Linear(weights.take("lm_head.weight")).packed()
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
        if self._embedding_scale != 1.0:
            hidden = hidden * self._embedding_scale
        deepstack: Sequence[torch.Tensor] = ()
        if media is not None:
            hidden = hidden.index_copy(0, media.rows, media.embeddings)
            deepstack = media.deepstack
        rotation = self._rope.at(position_ids)
        local = rotation if self._local_rope is None else self._local_rope.at(position_ids)
        fed: torch.Tensor | None = None
        for index, layer in enumerate(self._layers):
            is_local = self.spec.sliding_windows[index] > 0
            hidden, fed = layer(hidden, fed, local if is_local else rotation, attention)
            if media is not None and index < len(deepstack):
                hidden, fed = added(hidden, fed), None
                hidden.index_add_(0, media.rows, deepstack[index])
        return added(hidden, fed)

    def cross_kv(self, states: torch.Tensor) -> torch.Tensor:
        """K and V of a media item for the cross-attention layers.

        Args:
            states: [num_vectors, hidden_size], what the encoder made of it.

        Returns: [num_vectors, num_cross_layers, 2, num_kv_heads, head_dim].
        """
        cross = [layer for layer in self._layers if isinstance(layer, CrossLayer)]
        return torch.stack([layer.kv(states) for layer in cross], dim=1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """fp32 logits [num_rows, vocab_size] of hidden [num_rows, hidden_size]."""
        logits = self._head(self._norm(hidden))
        if self.spec.logit_soft_cap:
            cap = self.spec.logit_soft_cap
            logits = cap * torch.tanh(logits / cap)
        return logits.float()
