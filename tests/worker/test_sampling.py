"""Every wish of the contract becomes a parameter of the engine."""

from __future__ import annotations

import dataclasses

import pytest
from chiasm_contract.errors import InvalidRequest
from chiasm_contract.sampling import Sampling
from chiasm_worker.request import SamplingParams
from chiasm_worker.sampling import sampling_params

WISH = Sampling(
    n=2, temperature=0.3, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=1, frequency_penalty=-1,
    repetition_penalty=1.2, logit_bias={4: 1.5}, seed=9, max_tokens=30, min_tokens=3,
    ignore_eos=True, stop=("a",), stop_token_ids=(7, 7, 8), include_stop_str_in_output=True,
    logprobs=0,
)  # fmt: skip


def test_every_wish_arrives():
    assert set(WISH.model_fields_set) == set(Sampling.model_fields)
    params = sampling_params(WISH, room=100, vocab_size=10)
    assert params == SamplingParams(
        max_tokens=30, temperature=0.3, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=1,
        frequency_penalty=-1, repetition_penalty=1.2, logit_bias={4: 1.5}, seed=9, min_tokens=3,
        ignore_eos=True, stop=("a",), stop_token_ids=frozenset({7, 8}), include_stop=True,
        num_logprobs=0,
    )  # fmt: skip
    plain = sampling_params(Sampling(), room=100, vocab_size=10)
    assert plain == SamplingParams(max_tokens=100, temperature=1.0)
    for field in dataclasses.fields(SamplingParams):
        assert getattr(params, field.name) != getattr(plain, field.name), field.name


@pytest.mark.parametrize(
    ("wish", "param"),
    [
        (Sampling(logit_bias={10: 1}), "logit_bias"),
        (Sampling(stop_token_ids=(10,)), "stop_token_ids"),
        (Sampling(min_tokens=101), "min_tokens"),
        (Sampling(min_tokens=6, max_tokens=5), "min_tokens"),
    ],
)
def test_what_cannot_be_obeyed_is_named(wish: Sampling, param: str):
    with pytest.raises(InvalidRequest) as caught:
        sampling_params(wish, room=100, vocab_size=10)
    assert caught.value.param == param
    assert "allowed" in caught.value.message or "0 to 9" in caught.value.message
