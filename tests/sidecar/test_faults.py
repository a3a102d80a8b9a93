"""Errors as OpenAI's clients read them."""

from __future__ import annotations

import json

import pytest
from chiasm_contract.errors import (
    ChiasmError,
    InvalidRequest,
    Overloaded,
    RequestTooLarge,
    Unavailable,
    UnknownModel,
)
from chiasm_sidecar.front_door import faults


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("x"), 400, "invalid_request_error"),
        (UnknownModel("x"), 404, "not_found_error"),
        (RequestTooLarge("x"), 413, "invalid_request_error"),
        (Overloaded("x"), 429, "rate_limit_error"),
        (Unavailable("x"), 503, "service_unavailable_error"),
        (ChiasmError("x"), 500, "server_error"),
    ],
)
def test_types(error: ChiasmError, status: int, kind: str) -> None:
    assert faults.status_of(error) == status
    body = json.loads(faults.body_of(error, status))
    assert body == {"error": {"message": "x", "type": kind, "param": None, "code": error.code}}


def test_retry_after() -> None:
    assert faults.headers_of(Overloaded("x", retry_after_seconds=3)) == {"retry-after": "3"}
    assert faults.headers_of(InvalidRequest("x")) == {}


def test_messages_are_capped() -> None:
    message = json.loads(faults.body_of(ChiasmError("x" * 10_000), 500))["error"]["message"]
    assert len(message) == 2000
    assert message.endswith("...")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (("messages", 0, "<user>", "content", "<parts>", 1, "<image>", "image_url", "url"),
         "messages[0].content[1].image_url.url"),
        (("stop", "<words>"), "stop"),
        ((), None),
        (("x" * 200,), "x" * 97 + "..."),
    ],
)  # fmt: skip
def test_paths(location: tuple[int | str, ...], path: str | None) -> None:
    assert faults.path_of(location) == path
