"""The plain path: a whole sequence in one pass, without cache, blocks, chunks or batch.

Everything that the fast path keeps is made anew: encoder output, compression, K and V. Attention is
written out here, as scores, a mask over all pairs of tokens and a softmax. What it takes is freed
when it returns.

Must not know: the scheduler, the pool, the arena, who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from chiasm_worker.attention.base import AttentionLayer, CrossRows
from chiasm_worker.attention.heads import HeadNorm, Rotation, prepare
from chiasm_worker.checkup.drift import Logits
from chiasm_worker.checkup.shapes import planned_positions
from chiasm_worker.engine.encoding import EncoderInputs
from chiasm_worker.media_identity import MediaIdentity
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.compressor import COMPRESSORS, TokenGrid, Window
from chiasm_worker.models.decoder import MediaRows
from chiasm_worker.models.decoder_spec import DecoderSpec
from chiasm_worker.request import Prompt


class PlainPass:
    """One model's plain path over one prompt, in two parts of about a step's length each.

    Args:
        inputs: what the encoder takes of the prompt's media.
    """

    def __init__(self, model: LoadedModel, prompt: Prompt, inputs: Sequence[EncoderInputs]) -> None:
        self._model = model
        self._prompt = prompt
        self._inputs = inputs
        self._features: list[torch.Tensor] = []

    @torch.inference_mode()
    def encode(self) -> None:
        """First part: the media."""
        for span, inputs in zip(self._prompt.media, self._inputs, strict=True):
            [output] = self._model.encoder.encode_batch([inputs.tensors()]).features
            self._features.append(_compressed(output.to(self._model.dtype), span.item))

    @torch.inference_mode()
    def logits(
        self, token_ids: Sequence[int], wanted: Sequence[int], copies: int = 1
    ) -> list[Logits]:
        """Second part: fp64 logits [vocab_size] behind each wanted token.

        Args:
            token_ids: the prompt's, and those of the answer before the last wanted one.
            copies: how often the sequence is computed side by side; with 2, in another order.
        """
        device, length, spec = self._model.device, len(token_ids), self._model.decoder.spec
        positions = np.tile(planned_positions(self._prompt, 0, length), copies)
        hidden = self._model.decoder.forward(
            torch.tensor(list(token_ids) * copies, device=device),
            torch.from_numpy(positions).to(device),
            PlainStep(spec, self._prompt, self._features, length, copies, device),
            self._media_rows(length, copies),
        )
        rows = torch.tensor(wanted, device=device)
        return list(self._model.decoder.logits(hidden[rows]).to("cpu", torch.float64).numpy())

    def _media_rows(self, length: int, copies: int) -> MediaRows | None:
        spans = self._prompt.spans
        if not spans:
            return None
        rows = [
            copy * length + span.start + offset + i
            for copy in range(copies)
            for span in spans
            for offset, count in span.runs
            for i in range(count)
        ]
        features = torch.cat([*self._features] * copies)
        levels = features.split(self._model.decoder.spec.hidden_size, dim=1)
        index = torch.tensor(rows, device=self._model.device)
        return MediaRows(index, levels[0], tuple(levels[1:]))


class PlainStep:
    """Attention of one or more copies of a sequence; with copies, keys are summed from behind."""

    def __init__(
        self,
        spec: DecoderSpec,
        prompt: Prompt,
        features: Sequence[torch.Tensor],
        length: int,
        copies: int,
        device: torch.device,
    ) -> None:
        self._spec = spec
        self._chance = torch.Generator().manual_seed(0)
        self._length = length
        self._copies = copies
        self._spans = prompt.bidirectional
        self._features = features
        self._tokens = torch.arange(length, device=device)
        self._cross = prompt.cross
        self.cross_rows: CrossRows | None = None
        if prompt.cross:
            self._cross_mask, sees = self._visible_vectors()
            rows = torch.arange(length * copies, device=device)
            self.cross_rows = CrossRows(rows, sees.repeat(copies)[:, None])

    def forward(
        self,
        layer: AttentionLayer,
        heads: torch.Tensor,
        rotation: Rotation,
        norm: HeadNorm | None = None,
    ) -> torch.Tensor:
        """See AttentionStep."""
        q, kv = prepare(heads, self._spec.num_kv_heads, rotation, norm)
        mask = self._visible(layer)
        parts = zip(q.split(self._length), kv.split(self._length), strict=True)
        return torch.cat([self._attend(layer, q, kv[:, 0], kv[:, 1], mask) for q, kv in parts])

    def cross(self, layer: AttentionLayer, q: torch.Tensor) -> torch.Tensor:
        """See AttentionStep; a row of features is a vector's K and V for all layers that read."""
        spec = self._spec
        stored = torch.cat(list(self._features))
        shape = (len(spec.cross_layers), 2, spec.num_kv_heads, spec.head_dim)
        k, v = stored.unflatten(1, shape)[:, layer.index].unbind(1)
        return torch.cat(
            [self._attend(layer, each, k, v, self._cross_mask) for each in q.split(self._length)]
        )

    def _visible(self, layer: AttentionLayer) -> torch.Tensor:
        """[length, length] bool: which key each token sees."""
        queries, keys = self._tokens[:, None], self._tokens[None, :]
        near = torch.ones_like(queries >= keys)
        if layer.sliding_window:
            near = queries - keys < layer.sliding_window
        together = torch.zeros_like(near)
        for start, end in self._spans:
            inside = (self._tokens >= start) & (self._tokens < end)
            together |= inside[:, None] & inside[None, :]
        causal = keys <= queries
        if layer.spans_pass_window:
            return (causal & near) | together
        return (causal | together) & near

    def _visible_vectors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """[length, num_vectors] bool: what each token reads; [length] whether it has an item."""
        parts = []
        for span in self._cross:
            end = self._length if span.end is None else span.end
            reads = (self._tokens >= span.start) & (self._tokens < end)
            count = span.item.num_encoder_tokens
            shown = torch.arange(count, device=self._tokens.device) < span.num_visible
            parts.append(reads[:, None] & shown[None, :])
        mask = torch.cat(parts, dim=1)
        sees = mask.any(dim=1)
        return mask | ~sees[:, None], sees

    def _attend(
        self,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        if self._copies > 1:
            k, v, mask = k.flip(0), v.flip(0), mask.flip(1)
        group = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(group, dim=1).transpose(0, 1) for each in (k, v))
        # [num_heads, num_queries, num_keys]
        scores = torch.matmul(q.transpose(0, 1), k.transpose(1, 2)).float() * layer.scale
        if layer.soft_cap:
            scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        out = torch.matmul(weights.to(v.dtype), v).transpose(0, 1).flatten(1)
        return out if self._copies == 1 else self._nudged(out)

    def _nudged(self, out: torch.Tensor) -> torch.Tensor:
        """Each number one place higher or lower, as another order of sums might round it."""
        signs = torch.randint(0, 2, out.shape, generator=self._chance, dtype=torch.int8)
        by = torch.finfo(out.dtype).eps * (2 * signs.to(out.device, torch.float32) - 1)
        return (out.float() * (1 + by)).to(out.dtype)


def _compressed(output: torch.Tensor, item: MediaIdentity) -> torch.Tensor:
    how = item.compression
    if how is None:
        return output
    compressor = COMPRESSORS[how.compressor]
    return compressor.compress(output, TokenGrid(*how.token_grid), Window(*how.window))
