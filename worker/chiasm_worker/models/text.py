"""From a transformers text configuration to our decoder.

Text model types that our decoder computes are listed here once, for all families that use them.

Must not know: vision towers, media positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from chiasm_worker.layers.operations import Operations
from chiasm_worker.layers.rope import RotaryEmbedding, plain_axes
from chiasm_worker.models.decoder import Decoder
from chiasm_worker.models.decoder_spec import DecoderSpec, Weights

# Text model type -> whether q and k are normalised per head.
TEXT_MODELS: dict[str, bool] = {
    "llama": False,
    "mistral": False,
    "qwen2": False,
    "qwen3": True,
    "qwen2_vl_text": False,
    "qwen2_5_vl_text": False,
    "qwen3_vl_text": True,
    "mllama_text_model": False,
}
# Scalings whose frequencies do not depend on how long a sequence happens to be.
STATIC_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


def decoder_spec(config: Any) -> DecoderSpec:
    """Describe the decoder of a transformers text configuration.

    Raises: ValueError naming the model type when our decoder does not compute it.
    """
    if config.model_type not in TEXT_MODELS:
        raise ValueError(
            f"Text model {config.model_type!r} is not supported; supported are "
            f"{sorted(TEXT_MODELS)}."
        )
    return DecoderSpec(
        **sizes(config), activation=config.hidden_act, qk_norm=TEXT_MODELS[config.model_type]
    )


def sizes(config: Any) -> dict[str, Any]:
    """What every text configuration says under the same names, as fields of a DecoderSpec."""
    return {
        "num_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "head_dim": head_dim(config),
        "vocab_size": config.vocab_size,
        "norm_eps": config.rms_norm_eps,
        "sliding_windows": sliding_windows(config),
    }


def head_dim(config: Any) -> int:
    """The size of one attention head."""
    given = getattr(config, "head_dim", None)
    return int(given or config.hidden_size // config.num_attention_heads)


def rope_parameters(config: Any, layer_type: str | None = None) -> dict[str, Any]:
    """The rotary parameters of all layers, or of those of a type where types differ."""
    parameters = config.rope_parameters
    return dict(parameters if layer_type is None else parameters[layer_type])


def rope_scaling(config: Any, layer_type: str | None = None) -> str:
    """The rotary scaling with every parameter that changes its frequencies."""
    rope = rope_parameters(config, layer_type)
    kind = rope.pop("rope_type")
    if kind == "default":
        return "unscaled"
    for name in ("rope_theta", "type", "mrope_section", "mrope_interleaved"):
        rope.pop(name, None)
    return f"{kind}({','.join(f'{name}={rope[name]}' for name in sorted(rope))})"


def sliding_windows(config: Any) -> tuple[int, ...]:
    """Each layer's window in tokens, 0 for none."""
    window = int(getattr(config, "sliding_window", None) or 0)
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None:
        return (window,) * int(config.num_hidden_layers)
    known = {"full_attention": 0, "sliding_attention": window}
    if unknown := set(layer_types) - set(known):
        raise ValueError(f"Layer types {sorted(unknown)} are not supported; {sorted(known)} are.")
    return tuple(known[layer_type] for layer_type in layer_types)


def rotary(
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    axes: Sequence[int] | None = None,
    layer_type: str | None = None,
) -> RotaryEmbedding:
    """A rotary embedding with transformers' own frequencies.

    Args:
        layer_type: of which layers, where their types have different parameters.

    Raises: ValueError naming the scaling when it depends on the sequence's length.
    """
    rope = rope_parameters(config, layer_type)
    rope_type = rope["rope_type"]
    if rope_type not in STATIC_ROPE_TYPES:
        raise ValueError(
            f"Rotary scaling {rope_type!r} is not supported, because it changes cached keys as a "
            f"sequence grows; supported are {STATIC_ROPE_TYPES}."
        )
    scaling = 1.0
    if rope_type == "default":
        size = head_dim(config)
        exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
        inv_freq = 1.0 / (rope["rope_theta"] ** exponents)
    else:
        of_layers = {} if layer_type is None else {"layer_type": layer_type}
        inv_freq, scaling = ROPE_INIT_FUNCTIONS[rope_type](config, **of_layers)
    return RotaryEmbedding(
        inv_freq.to(device), axes or plain_axes(inv_freq.numel()), scaling, dtype
    )


def build_decoder(
    config: Any,
    rope: RotaryEmbedding,
    language_model: torch.nn.Module,
    head: torch.Tensor,
    operations: Operations,
) -> Decoder:
    """Our decoder with the weights of transformers' text model, which is emptied."""
    return Decoder(decoder_spec(config), rope, take_weights(language_model, head, operations))


def take_weights(
    language_model: torch.nn.Module, head: torch.Tensor, operations: Operations
) -> Weights:
    """The tensors of transformers' text model, which is emptied, and of its head.

    From here on each tensor is held once and freed as soon as it is fused.

    Args:
        operations: who computes with them.
    """
    tensors = {name: weight.detach() for name, weight in language_model.named_parameters()}
    language_model.to_empty(device="meta")
    return Weights({**tensors, "lm_head.weight": head.detach()}, operations)
