"""What this worker's cached vectors are computed for: the manifest behind its fingerprints.

Every field is what was really loaded and is really used, read off the model in memory: a flag or
a file name is never an identity.

Must not know: HTTP, requests.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from chiasm_contract import block_record, fingerprint
from chiasm_contract.config import BlockSize, Dtype, EngineLimits
from chiasm_contract.fingerprint import (
    Compute,
    Identity,
    KvDtype,
    Model,
    Position,
    Processor,
    Repr,
)
from chiasm_contract.fingerprint import Weights as WeightFields
from transformers.utils.logging import disable_progress_bar

from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.kernels.launch import machine
from chiasm_worker.kvcache.prefix_cache import root_key
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.modality.options import resolved_options
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.decoder import NUMERICS_VERSION
from chiasm_worker.models.registry import load_model

LAYOUT = "block-major"
# Of a model's configuration: what says nothing about the numbers (names, versions, how to generate
# and train), and the type of the numbers, which has a field of its own.
_NOT_MEANING = frozenset({
    "_name_or_path", "transformers_version",
    "dtype", "torch_dtype",
    "bos_token_id", "eos_token_id", "pad_token_id",
    "use_cache", "output_attentions", "output_hidden_states", "return_dict",
    "chunk_size_feed_forward", "is_encoder_decoder",
    "id2label", "label2id", "problem_type",
    "initializer_factor", "initializer_range",
})  # fmt: skip


def build_identity(model: LoadedModel, spec: KVCacheSpec, attention_numerics: str) -> Identity:
    """The manifest of a loaded model whose blocks have the shape `spec`."""
    scheme = model.family.position_scheme(model.config)
    dtype = str(model.dtype).removeprefix("torch.")
    compute = Compute(
        weights=WeightFields(
            language=model.digests.language,
            vision_encoder=model.digests.vision_encoder,
            projector=model.digests.projector,
        ),
        model=Model(config=config_digest(model.config)),
        processor=Processor(
            config=processor_digest(model.processor),
            resize_backend=resize_backend(model.processor),
            library_version=f"transformers {version('transformers')}",
        ),
        position=Position(
            type=scheme.type,
            theta=scheme.theta,
            scaling=scheme.scaling,
            sections=list(scheme.sections),
            window=scheme.window,
        ),
        compute_dtype=dtype,
        weight_quantization=model.weight_quantization,
        calibration="uncalibrated",
        attention_numerics=numerics_class(attention_numerics, model.device),
    )
    representation = Repr(
        schema_version=block_record.SCHEMA,
        kv_dtype=KvDtype(text=dtype, vision=dtype),
        scale_mode="unscaled",
        layout=LAYOUT,
        block_size=spec.block_size,
        num_layers=spec.num_layers,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        parallel_degree=1,
        parallel_rank=0,
    )
    return Identity(compute=compute, repr=representation)


def numerics_class(attention: str, device: torch.device) -> str:
    """Who computes, and so how numbers are rounded: kernels, machine, library, our own arithmetic.

    Args:
        attention: the implementation's name.
    """
    library = ".".join(torch.__version__.split(".")[:2])
    return f"{attention}-{machine(device)}-{library}/{NUMERICS_VERSION}"


def folder_identity(folder: Path, dtype: Dtype, block_size: BlockSize) -> Identity:
    """What a worker on this machine's CPU would report of the model in `folder`.

    Raises: ValueError or OSError saying why it cannot be loaded.
    """
    disable_progress_bar()  # who asks wants words on the terminal, and nothing else
    model = load_model(folder, getattr(torch, dtype), torch.device("cpu"))
    spec = cache_spec(model, EngineLimits(block_size=block_size))
    return build_identity(model, spec, model.choice.numerics)


def cache_root(identity: Identity) -> bytes:
    """The key that every block of this worker descends from; requests add who may read them."""
    return root_key(fingerprint.compute_fp(identity.compute), fingerprint.repr_fp(identity.repr))


def processor_digest(processor: Any) -> str:
    """64 hex digits over all of a processor as it is in memory.

    Its own settings (patch size, tokens a tile), those of its parts for each kind of media, what
    these parts are called with, the tokenizer and the chat template.
    """
    resolved = {
        "processor": processor.to_dict(),
        "options": resolved_options(processor),
        "tokenizer": json.loads(processor.tokenizer.backend_tokenizer.to_str()),
        "chat_template": processor.chat_template,
    }
    return _digest(resolved)


def config_digest(config: Any) -> str:
    """64 hex digits over the model's configuration, its text and vision parts included."""
    return _digest(_meaning(config.to_dict()))


def _meaning(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _meaning(value) for key, value in node.items() if key not in _NOT_MEANING}
    return node


def _digest(resolved: object) -> str:
    data = json.dumps(resolved, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(data.encode()).hexdigest()


def resize_backend(processor: Any) -> str:
    """Which library resizes pictures and frames of videos: two of them never agree to the last bit.

    Sound is none of this: it is resampled before it is digested.
    """
    parts = {kind: getattr(processor, f"{kind}_processor", None) for kind in ("image", "video")}
    used = [f"{kind} {_resizer(part)}" for kind, part in parts.items() if part is not None]
    return ", ".join(used) or "nothing is resized"


def _resizer(part: Any) -> str:
    bases = {base.__name__ for base in type(part).__mro__}
    library = "torchvision" if "TorchvisionBackend" in bases else "pillow"
    return f"{library} {version(library).split('+')[0]}"
