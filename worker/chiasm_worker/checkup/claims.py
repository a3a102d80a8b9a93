"""What a worker says that it is, against what really computes in it.

Must not know: files, requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from chiasm_contract import fingerprint
from chiasm_contract.fingerprint import Identity
from chiasm_contract.messages import IdentityReport

from chiasm_worker.engine.engine import Engine
from chiasm_worker.identity import cache_root, numerics_class


def identity_faults(engine: Engine, said: IdentityReport) -> Iterator[str]:
    """In what the engine is not what is said of it."""
    identity = Identity.from_fields(said.fields)
    if fingerprint.compute_fp(identity.compute) != said.compute_fp:
        yield "compute_fp is not the digest of the fields beside it"
    if fingerprint.repr_fp(identity.repr) != said.repr_fp:
        yield "repr_fp is not the digest of the fields beside it"
    if cache_root(identity) != engine.epoch.root:
        yield "its cache blocks descend from another identity"
    model, spec = engine.model, engine.spec
    real = {
        "compute.weights.language": model.digests.language,
        "compute.weights.vision_encoder": model.digests.vision_encoder,
        "compute.weights.projector": model.digests.projector,
        "compute.weight_quantization": model.weight_quantization,
        "compute.compute_dtype": str(model.dtype).removeprefix("torch."),
        "compute.attention_numerics": numerics_class(
            engine.runner.attention.numerics, model.device
        ),
        "repr.block_size": spec.block_size,
        "repr.num_layers": spec.num_layers,
        "repr.num_kv_heads": spec.num_kv_heads,
        "repr.head_dim": spec.head_dim,
    }
    for name, value in real.items():
        if said.fields.get(name) != value:
            yield f"{name} is said to be {said.fields.get(name)!r} and is {value!r}"
