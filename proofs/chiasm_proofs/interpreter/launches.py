"""Which kernels an engine must have launched for its decoder: nothing of it may be torch's unsaid.

Must not know: Triton, how launches are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chiasm_worker.models.decoder_spec import DecoderSpec

# Merges run only where something is long enough to be read in parts.
ALL = (
    "norm_kernel", "rope_write_kernel", "activation_mul_kernel", "prefill_kernel", "decode_kernel",
)  # fmt: skip
CROSS = ("cross_kernel",)


def missing(spec: DecoderSpec, launches: Mapping[str, int]) -> Iterator[str]:
    """What was launched less often than the decoder's layers were computed.

    Args:
        launches: kernel -> launches, while prompts and answers were computed.
    """
    for kernel in (*ALL, *(CROSS if spec.cross_layers else ())):
        if not launches.get(kernel):
            yield f"{kernel} was never launched"
            return
    # One in each self-attention layer, and none elsewhere.
    layers = launches["rope_write_kernel"]
    # One in each layer of either kind.
    cross_layers = launches["activation_mul_kernel"] - layers
    if (cross_layers > 0) != bool(spec.cross_layers) or cross_layers < 0:
        yield f"of {layers} layers' activations {-cross_layers} were not launched"
    # A cross-attention layer normalises its queries, too; the head, once at least.
    norms = (4 if spec.post_norms else 2) * layers + 3 * cross_layers + 1
    if launches["norm_kernel"] < norms:
        yield f"of at least {norms} norms {launches['norm_kernel']} were launched"
