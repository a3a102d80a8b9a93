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
    # Each self-attention layer rotates once; each layer, of either kind, activates once.
    layers, activations = launches["rope_write_kernel"], launches["activation_mul_kernel"]
    least = layers + bool(spec.cross_layers)
    if activations < least:
        yield f"of at least {least} activations {activations} were launched"
    # A cross-attention layer normalises its queries, too; the last norm is computed once at least.
    norms = (4 if spec.post_norms else 2) * layers + 3 * (activations - layers) + 1
    if launches["norm_kernel"] < norms:
        yield f"of at least {norms} norms {launches['norm_kernel']} were launched"
