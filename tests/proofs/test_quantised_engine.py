"""The engine with quantised weights as they are, interpreted: the tokens of dequantised ones."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_proofs.child import Child

FIELDS = ("form", "bits", "group", "symmetric")


@pytest.mark.parametrize(
    ("model", "scheme"),
    [
        ("qwen3-grouped", ("pack-quantized", 4, 64, False)),
        ("qwen2.5-grouped", ("int-quantized", 8, 0, True)),  # biases
    ],
)
def test_same_tokens(interpreted: Child, model: str, scheme: tuple[Any, ...], seed: int) -> None:
    described = dict(zip(FIELDS, scheme, strict=True))
    answer = interpreted.ask("quantised_engine", model=model, seed=seed, scheme=described)
    assert answer["num_tokens"] > 0
    assert answer["num_mismatches"] == 0, f"seed {seed}"
    # The faults: weights dequantised without a word; answers that are the same whatever was asked.
    assert answer["num_launches"] > 0
    assert answer["num_kinds"] > 1, f"seed {seed}"
    # Embeddings and tower stay as they are.
    assert answer["bytes_of_plain"] < 0.75
