"""Requests and events survive the way between sidecar and worker, and nothing malformed does."""

from __future__ import annotations

import struct

import pytest
from chiasm_contract import messages
from chiasm_contract.errors import InvalidRequest, RequestTooLarge
from chiasm_contract.messages import (
    AudioPart,
    ChatMessage,
    ErrorEvent,
    FinishEvent,
    GenerateHead,
    ImagePart,
    TextPart,
    TokenEvent,
    Usage,
    VideoPart,
)
from chiasm_contract.sampling import Sampling
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

PARTS = st.one_of(
    st.builds(TextPart, text=st.text(max_size=40)),
    st.builds(ImagePart, index=st.integers(0, 2)),
    st.builds(VideoPart, index=st.integers(0, 1)),
    st.builds(AudioPart, index=st.integers(0, 1)),
)
TURNS = st.builds(
    ChatMessage,
    role=st.sampled_from(["system", "user", "assistant"]),
    content=st.lists(PARTS, max_size=4).map(tuple),
)
HEADS = st.builds(
    GenerateHead,
    request_id=st.text("abc123-", min_size=1, max_size=20),
    messages=st.lists(TURNS, min_size=1, max_size=3).map(tuple),
    sampling=st.builds(
        Sampling,
        temperature=st.floats(0, 2),
        seed=st.none() | st.integers(-(2**63), 2**63 - 1),
        stop=st.lists(st.text(min_size=1, max_size=5), max_size=4).map(tuple),
    ),
)
HEAD = GenerateHead(
    request_id="r", messages=(ChatMessage(role="user", content=(ImagePart(index=0),)),)
)

SHOWN = GenerateHead(
    request_id="r", messages=(ChatMessage(role="user", content=(VideoPart(index=0),)),)
)
FILES = st.lists(st.binary(max_size=64), min_size=3, max_size=4)


@given(HEADS, FILES, FILES, FILES)
def test_requests_survive(
    head: GenerateHead, images: list[bytes], videos: list[bytes], audios: list[bytes]
) -> None:
    body = messages.encode_request(head, messages.MediaFiles(images, videos, audios))
    decoded, files = messages.decode_request(body)
    assert files.of("image") == files.images == tuple(images)
    assert files.of("video") == files.videos == tuple(videos)
    assert files.of("audio") == files.audios == tuple(audios)
    assert decoded == head.model_copy(
        update={
            "image_sizes_bytes": tuple(map(len, images)),
            "video_sizes_bytes": tuple(map(len, videos)),
            "audio_sizes_bytes": tuple(map(len, audios)),
        }
    )


def test_media_parts_are_in_the_order_of_the_conversation() -> None:
    parts = (VideoPart(index=1), ImagePart(index=0), VideoPart(index=0))
    turns = (
        ChatMessage(role="user", content=(TextPart(text="a"), parts[0])),
        ChatMessage(role="user", content=(parts[1], TextPart(text="b"), parts[2])),
    )
    assert GenerateHead(request_id="r", messages=turns).media_parts() == parts


@given(st.data())
def test_a_cut_request_is_refused(data: st.DataObject) -> None:
    body = messages.encode_request(HEAD, messages.MediaFiles((b"picture",)))
    length = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises((InvalidRequest, ValidationError)):
        messages.decode_request(body[:length])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "its head needs at least 4"),
        (struct.pack(">I", 900) + b"{}", "claims 900 bytes"),
        (messages.encode_request(HEAD, messages.MediaFiles((b"abc",))) + b"more", "do not add up"),
        (
            messages.encode_request(HEAD, messages.MediaFiles()),
            "Image part 0 has no picture behind it",
        ),
        (
            messages.encode_request(SHOWN, messages.MediaFiles((b"abc",))),
            "Video part 0 has no video behind it",
        ),
    ],
)
def test_malformed_requests_say_what_is_wrong(body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        messages.decode_request(body)


def test_a_head_that_takes_long_to_read_is_refused_unread() -> None:
    """The fault: megabytes of text read as JSON while nobody else is served."""
    length = messages.MAX_HEAD_BYTES + 1
    body = struct.pack(">I", length) + b"{" * length
    with pytest.raises(RequestTooLarge, match=f"has {length} bytes; at most 16777216") as caught:
        messages.decode_request(body)
    assert caught.value.param == "messages"


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        GenerateHead.model_validate({**HEAD.model_dump(), "video_sizes_bytes": [-1]})


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        GenerateHead.model_validate({**HEAD.model_dump(), "turbo": 1})


@pytest.mark.parametrize(
    "event",
    [
        TokenEvent(text="ä", token_ids=(1, 2)),
        FinishEvent(
            reason="stop",
            usage=Usage(prompt_tokens=1, completion_tokens=2, cached_tokens=0, image_tokens=0),
        ),
        ErrorEvent(error=InvalidRequest("no").body()),
    ],
    ids=lambda event: event.type,
)
def test_events_survive_as_one_line(event: TokenEvent | FinishEvent | ErrorEvent) -> None:
    line = event.model_dump_json()
    assert "\n" not in line
    assert messages.EVENT.validate_json(line) == event
