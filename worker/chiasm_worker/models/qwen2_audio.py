"""Qwen2-Audio: a Whisper-like tower over 30 seconds of sound, one linear layer, a Qwen2 decoder.

Must not know: batches, blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from chiasm_contract.config import MediaKind

from chiasm_worker.models.base import MediaEncoder, OneByOne
from chiasm_worker.models.projected import Projected


class _NoWords(torch.nn.Module):
    """Word embeddings for a text of sound alone: all of them are replaced."""

    def __init__(self, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._hidden_size = hidden_size
        self._dtype = dtype

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] of nothing."""
        shape = (*token_ids.shape, self._hidden_size)
        return torch.zeros(shape, dtype=self._dtype, device=token_ids.device)


class _Echo(torch.nn.Module):
    """Stands where transformers' language model was, and gives back what that would be given."""

    def __init__(self, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._words = _NoWords(hidden_size, dtype)

    def get_input_embeddings(self) -> torch.nn.Module:
        """What transformers asks a language model for."""
        return self._words

    def forward(self, inputs_embeds: torch.Tensor, **_: Any) -> Any:
        """The embeddings as they came."""
        return SimpleNamespace(
            last_hidden_state=inputs_embeds, cache=None, hidden_states=None, attentions=None
        )


class AudioEncoder(OneByOne):
    """transformers' tower, projector, masks and selection: its own forward, up to the decoder."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._model = model
        self._dtype = dtype
        model.language_model = _Echo(model.config.text_config.hidden_size, dtype)

    def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features of one sound; see MediaEncoder."""
        device = self._model.audio_tower.device
        mask = inputs["feature_attention_mask"].to(device)
        _, (count,) = self._model.audio_tower._get_feat_extract_output_lengths(mask.sum(-1))
        token = torch.full((1, int(count)), self._model.config.audio_token_id, device=device)
        output = self._model(
            input_ids=token,
            input_features=inputs["input_features"].to(device, self._dtype),
            feature_attention_mask=mask,
        )
        features: torch.Tensor = output.last_hidden_state[0]
        return features


class Qwen2Audio(Projected):
    """The Qwen2-Audio family."""

    name = "qwen2-audio"
    architectures = ("Qwen2AudioForConditionalGeneration",)
    modalities: tuple[MediaKind, ...] = ("audio",)
    tower = "audio_tower"

    def encoder(self, model: Any, dtype: torch.dtype) -> MediaEncoder:
        """The encoder of sound."""
        return AudioEncoder(model, dtype)

    def grid(self, inputs: Mapping[str, torch.Tensor], config: Any) -> tuple[int, ...]:
        """(steps,) of the spectrogram that hold sound."""
        return (int(inputs["feature_attention_mask"].sum()),)
