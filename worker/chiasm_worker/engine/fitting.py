"""Why a request cannot run here, in sentences for who sent it.

Must not know: what else runs.
"""

from __future__ import annotations

from chiasm_contract.errors import InvalidRequest, RequestTooLarge

from chiasm_worker.request import Prompt, SamplingParams


def check_length(prompt: Prompt, params: SamplingParams, max_model_len: int) -> None:
    """Raise InvalidRequest when prompt and answer together are longer than the model allows."""
    num_prompt = len(prompt.token_ids)
    if num_prompt + params.max_tokens > max_model_len:
        raise InvalidRequest(
            f"The prompt has {num_prompt} tokens (of them "
            f"{prompt.num_media_tokens.total()} for media) and max_tokens is "
            f"{params.max_tokens}; together at most "
            f"{max_model_len} are allowed. Shorten the one or lower the other.",
            param="messages" if num_prompt >= max_model_len else "max_tokens",
            code="context_length_exceeded",
        )


def too_large(prompt: Prompt, num_blocks: int) -> RequestTooLarge:
    """The fault of a request whose blocks would not fit even alone."""
    at_once = prompt.bidirectional or prompt.cross
    return RequestTooLarge(
        f"The request needs more cache blocks than the {num_blocks} of this worker"
        + (f"; its {len(prompt.media)} media items are read at once" if at_once else "")
        + ". Send fewer or smaller pictures, or lower max_tokens.",
        param="messages",
    )
