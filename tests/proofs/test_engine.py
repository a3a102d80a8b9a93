"""The engine with Triton's attention, interpreted: the tokens that torch's gives."""

from __future__ import annotations

import pytest
from chiasm_proofs.child import Child


@pytest.mark.parametrize(
    ("model", "cache"),
    [
        ("gemma3-narrow-window", None),  # spans that see one another, windows
        ("mllama-grouped", None),  # cross-attention
        ("qwen3-grouped", "e4m3"),  # M-RoPE, q/k norms, a quantised cache
    ],
)
def test_same_tokens(interpreted: Child, model: str, cache: str | None, seed: int) -> None:
    answer = interpreted.ask("engine", model=model, seed=seed, cache=cache)
    assert answer["num_tokens"] > 0
    assert answer["num_mismatches"] == 0, f"seed {seed}"
