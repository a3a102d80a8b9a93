"""Nothing outside the limits crosses from sidecar to worker."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract import sampling
from chiasm_contract.sampling import Sampling
from pydantic import ValidationError

BOUNDS: dict[str, tuple[tuple[Any, Any], ...]] = {
    # field: (the last allowed, the first beyond it) at each end
    "n": ((1, 0), (sampling.MAX_CHOICES, sampling.MAX_CHOICES + 1)),
    "temperature": ((0.0, -0.01), (2.0, 2.01)),
    "top_p": ((0.01, 0.0), (1.0, 1.01)),
    "top_k": ((0, -1), (sampling.MAX_TOKENS, sampling.MAX_TOKENS + 1)),
    "min_p": ((0.0, -0.01), (1.0, 1.01)),
    "presence_penalty": ((-2.0, -2.01), (2.0, 2.01)),
    "frequency_penalty": ((-2.0, -2.01), (2.0, 2.01)),
    "repetition_penalty": ((0.01, 0.0), (100.0, 100.1)),
    "logit_bias": (
        ({5: -100.0}, {5: -100.1}),
        ({5: 100.0}, {5: 100.1}),
        ({sampling.MAX_TOKENS: 0.0}, {sampling.MAX_TOKENS + 1: 0.0}),
        (dict.fromkeys(range(1024), 0.0), dict.fromkeys(range(1025), 0.0)),
    ),
    "seed": ((-(2**63), -(2**63) - 1), (2**63 - 1, 2**63)),
    "max_tokens": ((1, 0), (sampling.MAX_TOKENS, sampling.MAX_TOKENS + 1)),
    "min_tokens": ((0, -1), (sampling.MAX_TOKENS, sampling.MAX_TOKENS + 1)),
    "stop": ((("a",) * 4, ("a",) * 5), (("a" * 1000,), ("a" * 1001,)), (("a",), ("",))),
    "stop_token_ids": (((0,), (-1,)), ((1,) * 64, (1,) * 65)),
    "logprobs": ((0, -1), (20, 21)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_limits(name: str) -> None:
    for allowed, refused in BOUNDS[name]:
        assert getattr(Sampling(**{name: allowed}), name) == allowed
        with pytest.raises(ValidationError, match=name):
            Sampling(**{name: refused})


def test_every_field_but_the_switches_has_limits() -> None:
    switches = {name for name, field in Sampling.model_fields.items() if field.annotation is bool}
    assert Sampling.model_fields.keys() - switches == BOUNDS.keys()
