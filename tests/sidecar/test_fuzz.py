"""Whatever a client sends is answered or is the client's fault, never the server's."""

from __future__ import annotations

import copy
import json
from typing import Any

from chiasm_contract.config import AudioLimits, MediaLimits, VideoLimits
from chiasm_contract.errors import ClientFault
from chiasm_sidecar.front_door.intake import prepare
from chiasm_sidecar.front_door.schema import ChatRequest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sidecar.conftest import Pod, data_url, png, question, sound_part, video_part

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["text", "image_url", "user", "system", data_url(png()), "data:,", "auto"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "text", "image_url", "url", "detail", "role", "content", "x"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
PATHS: list[list[str | int]] = [
    *([name] for name in ChatRequest.model_fields),
    ["messages", 0],
    ["messages", 0, "role"],
    ["messages", 0, "content"],
    ["messages", 0, "content", 0],
    ["messages", 0, "content", 1, "type"],
    ["messages", 0, "content", 1, "image_url"],
    ["messages", 0, "content", 1, "image_url", "url"],
    ["messages", 0, "content", 1, "image_url", "detail"],
    ["messages", 0, "content", 1, "image_url", "x"],
]
VALID = question(data_url(png()), stream=False)
VALID["messages"][0]["content"] += [video_part(), sound_part()]
PATHS += [
    ["messages", 0, "content", 2, "video_url"],
    ["messages", 0, "content", 2, "video_url", "url"],
    ["messages", 0, "content", 3, "input_audio"],
    ["messages", 0, "content", 3, "input_audio", "data"],
    ["messages", 0, "content", 3, "input_audio", "format"],
]
LIMITS = MediaLimits(videos=VideoLimits(max_per_prompt=1), audios=AudioLimits(max_per_prompt=1))


def spoilt(changes: list[tuple[list[str | int], Any]]) -> bytes:
    """A valid request with some of its places overwritten."""
    body = copy.deepcopy(VALID)
    for path, value in changes:
        place: Any = body
        try:
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed the place
    return json.dumps(body).encode("utf-8", "surrogatepass")


CHANGES = st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3)


def outcome(body: bytes) -> int:
    try:
        prepare(body, "demo", LIMITS)
    except ClientFault as error:
        return int(error.status)
    return 200


@given(CHANGES)
@settings(max_examples=600)
def test_spoilt_requests(changes: list[tuple[list[str | int], Any]]) -> None:
    assert outcome(spoilt(changes)) in {200, 400, 404, 413}


@given(VALUES)
@settings(max_examples=200)
def test_other_json(value: Any) -> None:
    assert outcome(json.dumps(value).encode("utf-8", "surrogatepass")) == 400


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_other_bytes(body: bytes) -> None:
    assert outcome(body) == 400


@given(CHANGES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_over_http(pod: Pod, changes: list[tuple[list[str | int], Any]]) -> None:
    address = f"{pod.url}/v1/chat/completions"
    async with pod.http.post(address, data=spoilt(changes)) as answer:
        text = await answer.text()
        assert answer.status < 500
        if answer.status != 200:
            error = json.loads(text)["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert len(text) < 8000
