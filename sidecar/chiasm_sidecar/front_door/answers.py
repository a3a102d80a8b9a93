"""The bytes of an answer: one JSON object, or a stream of server-sent events.

A stream is one write a token, so everything that does not change within one answer is encoded
once; only the text (and log-probabilities, where asked for) is encoded for each piece.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract.errors import ChiasmError
from chiasm_contract.messages import ChosenLogprob, FinishEvent, TokenEvent, TokenLogprob, Usage

from chiasm_sidecar.front_door import faults

DONE = b"data: [DONE]\n\n"
_FINGERPRINT_CHARS = 16


@dataclass(frozen=True)
class AnswerHead:
    """What every object of one answer repeats."""

    answer_id: str
    model_id: str
    compute_fp: str
    created: int = field(default_factory=lambda: int(time.time()))

    def fields(self, kind: str) -> dict[str, Any]:
        """The head as JSON fields; `kind` is OpenAI's object type."""
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model_id,
            "system_fingerprint": self.compute_fp[:_FINGERPRINT_CHARS],
        }


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Usage as clients read it; what media cost under OpenAI's names and under vLLM's.

    What pictures would have cost at detail `high`, and each one's ratio, have no name elsewhere.
    """
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "image_tokens": usage.image_tokens,
            "video_tokens": usage.video_tokens,
            "audio_tokens": usage.audio_tokens,
            "multimodal_tokens": {
                "image": usage.image_tokens,
                "video": usage.video_tokens,
                "audio": usage.audio_tokens,
            },
            "uncompressed_image_tokens": usage.uncompressed_image_tokens,
            "image_compression": list(usage.image_compression),
        },
    }


def _one_logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.token_bytes)}


def _logprob_content(chosen: Iterable[ChosenLogprob]) -> list[dict[str, Any]]:
    return [
        {**_one_logprob(token), "top_logprobs": [_one_logprob(top) for top in token.top]}
        for token in chosen
    ]


def complete(head: AnswerHead, events: Sequence[TokenEvent | FinishEvent], usage: Usage) -> bytes:
    """The whole answer as one chat.completion object, its choices in order."""
    ends = sorted(
        (event for event in events if isinstance(event, FinishEvent)), key=lambda end: end.index
    )
    tokens: dict[int, list[TokenEvent]] = {end.index: [] for end in ends}
    for event in events:
        if isinstance(event, TokenEvent):
            tokens[event.index].append(event)
    choices = [_choice(tokens[end.index], end) for end in ends]
    return json.dumps(
        {
            **head.fields("chat.completion"),
            "choices": choices,
            "usage": usage_fields(usage),
        }
    ).encode()


def _choice(tokens: Sequence[TokenEvent], end: FinishEvent) -> dict[str, Any]:
    logprobs = None
    if any(event.logprobs is not None for event in tokens):
        content = [entry for event in tokens for entry in _logprob_content(event.logprobs or ())]
        logprobs = {"content": content, "refusal": None}
    text = "".join(event.text for event in tokens)
    return {
        "index": end.index,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": logprobs,
        "finish_reason": end.reason,
        "stop_reason": end.stop_reason,
    }


class EventStream:
    """Encodes the events of one streamed answer, its choices interleaved as they come."""

    def __init__(self, head: AnswerHead, include_usage: bool, num_choices: int = 1) -> None:
        self._head = head.fields("chat.completion.chunk")
        self._include_usage = include_usage
        opening = json.dumps(self._head)[:-1]
        self._prefixes = [
            f'data: {opening}, "choices": [{{"index": {index}, "delta": '
            for index in range(num_choices)
        ]
        usage = ', "usage": null' if include_usage else ""
        self._suffix = f"}}]{usage}}}\n\n"
        self._plain_suffix = f'}}, "logprobs": null, "finish_reason": null{self._suffix}'

    def _chunk(self, index: int, delta: str, rest: str) -> str:
        return f"{self._prefixes[index]}{delta}, {rest}{self._suffix}"

    def first(self) -> bytes:
        """The chunks that carry the role, one for each choice."""
        delta = '{"role": "assistant", "content": ""}'
        rest = '"logprobs": null, "finish_reason": null'
        chunks = [self._chunk(index, delta, rest) for index in range(len(self._prefixes))]
        return "".join(chunks).encode()

    def token(self, event: TokenEvent) -> bytes:
        """One piece of text; nothing when it adds neither text nor log-probabilities."""
        if not event.logprobs:
            if not event.text:
                return b""
            text, prefix = json.dumps(event.text), self._prefixes[event.index]
            return f'{prefix}{{"content": {text}{self._plain_suffix}'.encode("ascii")
        delta = json.dumps({"content": event.text})
        logprobs = json.dumps({"content": _logprob_content(event.logprobs), "refusal": None})
        rest = f'"logprobs": {logprobs}, "finish_reason": null'
        return self._chunk(event.index, delta, rest).encode()

    def finish(self, event: FinishEvent, note: bytes = b"") -> bytes:
        """Why a choice ended; behind the last one the usage where asked for, a note for who passes
        the stream on, and the end mark."""
        stop_reason = json.dumps(event.stop_reason)
        rest = f'"logprobs": null, "finish_reason": "{event.reason}", "stop_reason": {stop_reason}'
        data = self._chunk(event.index, "{}", rest)
        if event.usage is None:
            return data.encode()
        if self._include_usage:
            usage = usage_fields(event.usage)
            data += f"data: {json.dumps({**self._head, 'choices': [], 'usage': usage})}\n\n"
        return data.encode() + note + DONE


def fault_event(error: ChiasmError) -> bytes:
    """An error after the stream began; the missing end mark says that it is not complete."""
    return b"data: " + faults.body_of(error, faults.status_of(error)) + b"\n\n"
