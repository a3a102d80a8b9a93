"""The engine on Triton's kernels, interpreted: the tokens that torch gives, by all its kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chiasm_proofs.child import Child
from chiasm_proofs.interpreter.launches import missing
from chiasm_worker.models.decoder_spec import DecoderSpec


@pytest.mark.parametrize(
    ("model", "cache"),
    [
        ("gemma3-narrow-window", None),  # spans that see one another, windows
        ("mllama-grouped", None),  # cross-attention
        ("qwen3-grouped", "e4m3"),  # M-RoPE, q/k norms, a quantised cache
    ],
)
def test_same_tokens(interpreted: Child, model: str, cache: str | None, seed: int) -> None:
    answer = interpreted.ask("engine", model=model, seed=seed, cache=cache, quick=True)
    assert answer["num_tokens"] > 0
    assert answer["num_mismatches"] == 0, f"seed {seed}"
    assert answer["not_launched"] == answer["exceptions"] == [], answer["kernels"]


def test_operations_are_torchs(interpreted: Child, seed: int) -> None:
    """Norms with and without a sum, products, and norm, rotation and write of heads."""
    assert interpreted.ask("layers", seed=seed)["faults"] == [], f"seed {seed}"


PLAIN = DecoderSpec(
    num_layers=2, hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8, vocab_size=8,
    norm_eps=1e-6, activation="silu", qk_norm=False, sliding_windows=(0, 0),
)  # fmt: skip
# Two layers, three times.
LAUNCHED = {
    "norm_kernel": 15, "rope_write_kernel": 6, "activation_mul_kernel": 6, "prefill_kernel": 2,
    "decode_kernel": 4,
}  # fmt: skip


def test_all_that_a_decoder_needs() -> None:
    assert list(missing(PLAIN, LAUNCHED)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"norm_kernel": 0}, "norm_kernel was never launched"),
        ({"norm_kernel": 9}, "of at least 13 norms 9 were launched"),
        ({"activation_mul_kernel": 3}, "of at least 6 activations 3 were launched"),
    ],
)
def test_a_mix_with_torch_is_seen(changed: dict[str, int], said: str) -> None:
    """The fault: some of a decoder's operations stay torch's, and tokens are the same."""
    assert said in list(missing(PLAIN, LAUNCHED | changed))


def test_cross_attention_layers_have_kernels_and_norms_of_their_own() -> None:
    spec = replace(PLAIN, cross_layers=(1,))
    assert list(missing(spec, LAUNCHED)) == ["cross_kernel was never launched"]
    launched = LAUNCHED | {"cross_kernel": 3, "activation_mul_kernel": 9}
    assert list(missing(spec, launched)) == ["of at least 22 norms 15 were launched"]
    assert list(missing(spec, launched | {"norm_kernel": 22})) == []
