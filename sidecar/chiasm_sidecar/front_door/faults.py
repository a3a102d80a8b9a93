"""Errors as OpenAI's clients read them: {"error": {message, type, param, code}}.

Messages are capped, for a validation error can repeat a request many times over, and carry
nothing of what was sent beyond short values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from chiasm_contract.errors import ChiasmError, InvalidRequest
from pydantic import ValidationError
from pydantic_core import ErrorDetails

MAX_MESSAGE_CHARS = 2000
MAX_FAULTS_NAMED = 5

_TYPES = {
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "service_unavailable_error",
}


def status_of(error: ChiasmError) -> int:
    """The status a client sees."""
    return int(error.body().status)


def headers_of(error: ChiasmError) -> dict[str, str]:
    """`Retry-After` where waiting helps."""
    if error.retry_after_seconds is None:
        return {}
    return {"retry-after": str(error.retry_after_seconds)}


def body_of(error: ChiasmError, status: int) -> bytes:
    """The JSON body for `error`."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    message = error.message
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[: MAX_MESSAGE_CHARS - 3] + "..."
    return json.dumps(
        {
            "error": {
                "message": message,
                "type": _TYPES.get(HTTPStatus(status), kind),
                "param": error.param,
                "code": error.code,
            }
        }
    ).encode()


def path_of(location: Sequence[int | str]) -> str | None:
    """`messages[0].content[1].image_url.url` from pydantic's location; union tags left out."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not (step.startswith("<") and step.endswith(">")):
            name = step if len(step) <= 100 else step[:97] + "..."
            path += f".{name}" if path else name
    return path or None


def from_validation(error: ValidationError, allowed: Mapping[str, Any]) -> InvalidRequest:
    """One InvalidRequest that names the first faults, the first of them as its `param`.

    Args:
        error: what pydantic found.
        allowed: the fields that a request may have at its top.
    """
    details = error.errors(include_url=False, include_input=False, include_context=False)
    if details[0]["type"] == "json_invalid":
        return InvalidRequest(f"The body is not JSON: {_reason(details[0])}.", code="invalid_json")
    sentences = [_sentence(detail, allowed) for detail in details[:MAX_FAULTS_NAMED]]
    if len(details) > MAX_FAULTS_NAMED:
        sentences.append(f"{len(details) - MAX_FAULTS_NAMED} more faults are not listed.")
    return InvalidRequest(" ".join(sentences), param=path_of(details[0]["loc"]))


def _sentence(detail: ErrorDetails, allowed: Mapping[str, Any]) -> str:
    path = path_of(detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            known = f"; allowed: {', '.join(allowed)}" if len(detail["loc"]) == 1 else ""
            return f"{path} is not a field of this API, leave it out{known}."
        case "missing":
            return f"{path} is missing."
        case "conflict":
            return f"{detail['msg']}."
    return f"{path or 'The body'}: {_reason(detail)}."


def _reason(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Invalid JSON: ")
    return message if len(message) <= 300 else message[:297] + "..."
