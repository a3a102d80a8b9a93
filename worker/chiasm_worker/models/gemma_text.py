"""The text decoders of Gemma 1, 2 and 3: scaled embeddings, norms around 1, soft caps, two ropes.

Must not know: vision towers, media positions.
"""

from __future__ import annotations

from typing import Any

from chiasm_worker.layers.operations import Operations
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.decoder_spec import DecoderSpec
from chiasm_worker.models.mask import MaskRule
from chiasm_worker.models.text import rotary, sizes, take_weights

# Text model type -> whether there are norms behind attention and feed-forward, too.
GEMMA_MODELS: dict[str, bool] = {"gemma": False, "gemma2": True, "gemma3_text": True}


def build_gemma(model: Any, config: Any, mask: MaskRule, operations: Operations) -> Decoder:
    """Our decoder with the weights of the text model inside transformers' `model`.

    Args:
        config: the text model's.
        operations: who computes.

    Raises: ValueError naming the model type when it is no Gemma.
    """
    spec = gemma_spec(config, mask)
    dtype, device = model.dtype, model.device
    weights = take_weights(model.model.language_model, model.lm_head.weight, operations)
    if config.model_type != "gemma3_text":
        return Decoder(spec, rotary(config, dtype, device), weights)
    full, sliding = (
        rotary(config, dtype, device, layer_type=layer_type)
        for layer_type in ("full_attention", "sliding_attention")
    )
    return Decoder(spec, full, weights, sliding)


def gemma_spec(config: Any, mask: MaskRule) -> DecoderSpec:
    """Describe the decoder of a Gemma text configuration."""
    if config.model_type not in GEMMA_MODELS:
        raise ValueError(
            f"Text model {config.model_type!r} is not supported here; supported are "
            f"{sorted(GEMMA_MODELS)}."
        )
    is_gemma2 = config.model_type == "gemma2"
    return DecoderSpec(
        **sizes(config),
        activation=config.hidden_act if config.model_type == "gemma" else config.hidden_activation,
        qk_norm=config.model_type == "gemma3_text",
        mask=mask,
        # transformers joins a prompt's span to the window, and lays the window over a picture's.
        spans_pass_window=mask is MaskRule.PROMPT,
        offset_norms=True,
        post_norms=GEMMA_MODELS[config.model_type],
        embedding_scale=config.hidden_size**0.5,
        query_scalar=0.0 if config.model_type == "gemma" else config.query_pre_attn_scalar,
        attention_soft_cap=(config.attn_logit_softcapping or 0.0) if is_gemma2 else 0.0,
        logit_soft_cap=(config.final_logit_softcapping or 0.0) if is_gemma2 else 0.0,
    )
