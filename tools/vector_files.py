"""tests/golden/fingerprints.json: whole manifests, the bytes that are digested, and the digests.

For other implementations and other Python versions. A digest that changes makes every cache of
before unreadable: when this file's diff changes a line instead of adding one, raise
fingerprint.SCHEMA.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chiasm_contract.fingerprint import (
    SCHEMA,
    SHARED,
    Compute,
    Repr,
    Scope,
    compute_fp,
    encoded,
    repr_fp,
    scope_fp,
)

QWEN: dict[str, Any] = {
    "weights": {"language": "a1" * 32, "vision_encoder": "b2" * 32, "projector": "c3" * 32},
    "model": {"config": "d4" * 32},
    "processor": {
        "config": "e5" * 32,
        "resize_backend": "torchvision 0.29.0",
        "library_version": "transformers 5.24.0",
    },
    "position": {
        "type": "mrope",
        "theta": 1000000.0,
        "scaling": "unscaled",
        "sections": [16, 24, 24],
        "window": 0,
    },
    "compute_dtype": "bfloat16",
    "weight_quantization": "unquantized",
    "calibration": "uncalibrated",
    "attention_numerics": "torch-reference",
}
BLOCKS: dict[str, Any] = {
    "schema_version": 1,
    "kv_dtype": {"text": "bfloat16", "vision": "bfloat16"},
    "scale_mode": "unscaled",
    "layout": "block-major",
    "block_size": 16,
    "num_layers": 28,
    "num_kv_heads": 4,
    "head_dim": 128,
    "parallel_degree": 1,
    "parallel_rank": 0,
}
TENANT = {"tenant": "0123456789abcdef" * 4, "adapter": "base", "track": "canary"}

# Name -> compute, repr and scope, chosen for every length that a number or a word can have.
MANIFESTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "mrope, no tenant": (QWEN, BLOCKS, SHARED.model_dump()),
    "rope, a tenant, quantized": (
        {
            **QWEN,
            "position": {
                "type": "rope", "theta": 10000.0, "scaling": "yarn 4.0",
                "sections": [], "window": 4096,
            },
            "compute_dtype": "float16",
            "weight_quantization": "int4 group 128",
            "calibration": "f6" * 32,
        },
        {
            **BLOCKS,
            "kv_dtype": {"text": "float16", "vision": "fp8-e4m3"},
            "scale_mode": "per-head",
            "parallel_degree": 8,
            "parallel_rank": 7,
        },
        TENANT,
    ),
    "the least and the most": (
        {
            **QWEN,
            "position": {
                "type": "x", "theta": 0.0, "scaling": "ü水𐅑" * 50,
                "sections": [0, 23, 24, 255, 256, 65535, 65536, 4294967295, 4294967296],
                "window": 2**63,
            },
        },
        {
            **BLOCKS, "num_layers": 0, "block_size": 2**63,
            "layout": "y" * 24, "scale_mode": "z" * 23,
        },
        {"tenant": "t", "adapter": "a" * 200, "track": "s"},
    ),
    "odd floats": (
        {**QWEN, "position": {**QWEN["position"], "theta": 5e-324}},
        {**BLOCKS, "head_dim": 1},
        {**TENANT, "track": "stable"},
    ),
}  # fmt: skip


def outputs(root: Path) -> dict[Path, str]:
    document = {"schema": SCHEMA, "vectors": [_vector(name) for name in MANIFESTS]}
    text = json.dumps(document, indent=2, ensure_ascii=True) + "\n"
    return {root / "tests" / "golden" / "fingerprints.json": text}


def _vector(name: str) -> dict[str, Any]:
    compute, representation, scope = MANIFESTS[name]
    parts = (Compute(**compute), Repr(**representation), Scope(**scope))
    digests = (compute_fp(parts[0]), repr_fp(parts[1]), scope_fp(parts[2]))
    return {
        "name": name,
        **{
            domain: {"fields": part.model_dump(), "cbor": encoded(part).hex(), "sha256": digest}
            for domain, part, digest in zip(
                ("compute", "repr", "scope"), parts, digests, strict=True
            )
        },
    }
