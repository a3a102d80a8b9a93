"""A sound identity for benchmarks without a model: a sidecar admits and serves no other."""

from __future__ import annotations

from chiasm_contract.fingerprint import Identity, compute_fp, repr_fp
from chiasm_contract.messages import IdentityReport


def identity_of_nobody(text_dtype: str = "-", media_dtype: str = "-") -> IdentityReport:
    """Names nothing that exists."""
    digest = "0" * 64
    numbers = ("block_size", "num_layers", "num_kv_heads", "head_dim")
    whole = Identity.model_validate(
        {
            "compute": {
                "weights": {"language": digest, "vision_encoder": digest, "projector": digest},
                "model": {"config": digest},
                "processor": {"config": digest, "resize_backend": "-", "library_version": "-"},
                "position": {
                    "type": "-", "theta": 1.0, "scaling": "-", "sections": [], "window": 0,
                },
                **dict.fromkeys(("compute_dtype", "weight_quantization", "calibration"), "-"),
                "attention_numerics": "-",
            },
            "repr": {
                "schema_version": 1,
                "kv_dtype": {"text": text_dtype, "vision": media_dtype},
                **dict.fromkeys(("scale_mode", "layout"), "-"),
                **dict.fromkeys((*numbers, "parallel_degree", "parallel_rank"), 1),
            },
        }
    )  # fmt: skip
    return IdentityReport(
        compute_fp=compute_fp(whole.compute),
        repr_fp=repr_fp(whole.repr),
        incarnation="bench",
        fields=whole.fields(),
    )
