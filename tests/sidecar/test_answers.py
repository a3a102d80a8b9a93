"""The bytes of answers, read back as JSON."""

from __future__ import annotations

import json
from typing import Any

from chiasm_contract.errors import Overloaded
from chiasm_contract.messages import ChosenLogprob, FinishEvent, TokenEvent, TokenLogprob, Usage
from chiasm_sidecar.front_door.answers import AnswerHead, EventStream, complete, fault_event

HEAD = AnswerHead("chatcmpl-1", "demo", "0123456789abcdef" * 4, created=7)
USAGE = Usage(
    prompt_tokens=20,
    completion_tokens=2,
    cached_tokens=16,
    image_tokens=9,
    video_tokens=5,
    audio_tokens=3,
    uncompressed_image_tokens=33,
    image_compression=(1, 4),
)
FINISH = FinishEvent(reason="length", usage=USAGE)
NASTY = 'ü"\\\n\u2028😀</script>'


def chosen(text: str) -> ChosenLogprob:
    raw = tuple(text.encode())
    top = (TokenLogprob(token="x", token_bytes=(120,), logprob=-2.0),)
    return ChosenLogprob(token=text, token_bytes=raw, logprob=-0.5, top=top)


def events(data: bytes) -> list[Any]:
    lines = data.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_complete_answer() -> None:
    tokens = [TokenEvent(text="a", token_ids=(1,)), TokenEvent(text=NASTY, token_ids=(2, 3))]
    answer = json.loads(complete(HEAD, [*tokens, FINISH], USAGE))
    assert answer == {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "demo",
        "system_fingerprint": "0123456789abcdef",
        "choices": [{
            "index": 0, "logprobs": None, "finish_reason": "length", "stop_reason": None,
            "message": {"role": "assistant", "content": "a" + NASTY, "refusal": None},
        }],
        "usage": {
            "prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22,
            "prompt_tokens_details": {
                "cached_tokens": 16, "image_tokens": 9, "video_tokens": 5, "audio_tokens": 3,
                "multimodal_tokens": {"image": 9, "video": 5, "audio": 3},
                "uncompressed_image_tokens": 33, "image_compression": [1, 4],
            },
        },
    }  # fmt: skip


def test_logprobs_of_a_complete_answer() -> None:
    tokens = [TokenEvent(text="ü", token_ids=(1,), logprobs=(chosen("ü"),))] * 2
    choice = json.loads(complete(HEAD, [*tokens, FINISH], USAGE))["choices"][0]
    assert choice["logprobs"]["content"] == [
        {
            "token": "ü", "logprob": -0.5, "bytes": [195, 188],
            "top_logprobs": [{"token": "x", "logprob": -2.0, "bytes": [120]}],
        }
    ] * 2  # fmt: skip


def test_stream() -> None:
    stream = EventStream(HEAD, include_usage=False)
    data = stream.first() + stream.token(TokenEvent(text=NASTY, token_ids=(1,)))
    first, token, last, done = events(data + stream.finish(FINISH))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert token == {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "demo",
        "system_fingerprint": "0123456789abcdef",
        "choices": [
            {"index": 0, "delta": {"content": NASTY}, "logprobs": None, "finish_reason": None}
        ],
    }  # fmt: skip
    assert last["choices"][0] == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": "length", "stop_reason": None,
    }  # fmt: skip
    assert done == "[DONE]"


def test_stream_with_usage() -> None:
    stream = EventStream(HEAD, include_usage=True)
    data = stream.first() + stream.token(TokenEvent(text="a", token_ids=(1,)))
    first, token, last, usage, _ = events(data + stream.finish(FINISH))
    assert first["usage"] is token["usage"] is last["usage"] is None
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 22


CHOICES: list[TokenEvent | FinishEvent] = [
    TokenEvent(index=1, text="b", token_ids=(1,)),
    TokenEvent(index=0, text="a", token_ids=(2,)),
    FinishEvent(index=1, reason="stop", stop_reason=7, usage=None),
    TokenEvent(index=0, text="a", token_ids=(2,)),
    FinishEvent(index=0, reason="stop", stop_reason="END", usage=USAGE),
]


def test_choices_are_put_together_in_order() -> None:
    choices = json.loads(complete(HEAD, CHOICES, USAGE))["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert [choice["message"]["content"] for choice in choices] == ["aa", "b"]
    assert [choice["stop_reason"] for choice in choices] == ["END", 7]


def test_streamed_choices_interleave_and_end_together() -> None:
    stream = EventStream(HEAD, include_usage=True, num_choices=2)
    sent = [stream.first()]
    for event in CHOICES:
        is_token = isinstance(event, TokenEvent)
        sent.append(stream.token(event) if is_token else stream.finish(event))
    *chunks, usage, done = events(b"".join(sent))
    assert done == "[DONE]"
    assert usage["usage"]["total_tokens"] == 22
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["index"] for choice in choices] == [0, 1, 1, 0, 1, 0, 0]
    assert [choice["delta"].get("role") for choice in choices[:2]] == ["assistant"] * 2
    ends = {choice["index"]: choice for choice in choices if choice["finish_reason"]}
    assert {index: end["stop_reason"] for index, end in ends.items()} == {0: "END", 1: 7}


def test_tokens_without_text() -> None:
    stream = EventStream(HEAD, include_usage=False)
    assert stream.token(TokenEvent(text="", token_ids=(1,))) == b""
    (chunk,) = events(stream.token(TokenEvent(text="", token_ids=(1,), logprobs=(chosen("a"),))))
    assert chunk["choices"][0]["delta"] == {"content": ""}
    assert chunk["choices"][0]["logprobs"]["content"][0]["token"] == "a"


def test_fault_within_a_stream() -> None:
    (fault,) = events(fault_event(Overloaded("Too much.")))
    assert fault["error"]["message"] == "Too much."
