"""From a request's wishes to what the engine obeys: defaults resolved, token ids checked.

Must not know: how tokens are chosen.
"""

from __future__ import annotations

from chiasm_contract.errors import InvalidRequest
from chiasm_contract.sampling import Sampling

from chiasm_worker.request import SamplingParams


def sampling_params(sampling: Sampling, room: int, vocab_size: int) -> SamplingParams:
    """The engine's parameters for one request.

    Args:
        sampling: what was asked for.
        room: how many tokens may follow the prompt.
        vocab_size: how many token ids the model has.

    Raises: InvalidRequest naming the field that this model or this prompt cannot obey.
    """
    max_tokens = sampling.max_tokens or room
    _check_ids("logit_bias", list(sampling.logit_bias), vocab_size)
    _check_ids("stop_token_ids", sampling.stop_token_ids, vocab_size)
    if sampling.min_tokens > max_tokens:
        asked = "max_tokens is" if sampling.max_tokens else "the model's length leaves room for"
        raise InvalidRequest(
            f"min_tokens is {sampling.min_tokens}, but {asked} {max_tokens}; allowed: 0 to "
            f"{max_tokens}.",
            param="min_tokens",
        )
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        seed=sampling.seed,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,
        stop=sampling.stop,
        stop_token_ids=frozenset(sampling.stop_token_ids),
        include_stop=sampling.include_stop_str_in_output,
        num_logprobs=sampling.logprobs,
    )


def _check_ids(field: str, token_ids: list[int] | tuple[int, ...], vocab_size: int) -> None:
    wrong = max(token_ids, default=0)
    if wrong >= vocab_size:
        raise InvalidRequest(
            f"{field} names token {wrong}; this model's tokens are 0 to {vocab_size - 1}.",
            param=field,
        )
