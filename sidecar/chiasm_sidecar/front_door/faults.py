"""Errors as OpenAI's clients read them: {"error": {message, type, param, code}}.

Messages are capped, for a validation error can repeat a request many times over, and carry
nothing of what was sent beyond short values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from chiasm_contract.errors import ChiasmError, InvalidRequest, Unauthorized
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from chiasm_sidecar.front_door.allowed import allowed_values

MAX_MESSAGE_CHARS = 2000
MAX_FAULTS_NAMED = 5

_NOT_JSON = "invalid_json"
_KEY = "[key]"  # pydantic's step from an object to the name of one of its fields
# Rules of `schema` that say what they want themselves.
_OWN_WORDS = {"unsupported", "content", "content_part", "role", "stop"}
_KINDS = {
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "string_unicode": "valid Unicode",
}
_TYPES = {
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "service_unavailable_error",
}


def status_of(error: ChiasmError) -> int:
    """The status a client sees."""
    return int(error.body().status)


def headers_of(error: ChiasmError) -> dict[str, str]:
    """`Retry-After` where waiting helps, and how to say who one is where that is missing."""
    if isinstance(error, Unauthorized):
        return {"www-authenticate": "Bearer"}
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
        elif step != _KEY and not (step.startswith("<") and step.endswith(">")):
            name = step if len(step) <= 100 else step[:97] + "..."
            path += f".{name}" if path else name
    return path or None


def from_validation(error: ValidationError, model: type[BaseModel]) -> InvalidRequest:
    """One InvalidRequest that names the first faults, the first of them as its `param`.

    Args:
        error: what pydantic found.
        model: the request's model.
    """
    details = error.errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        return InvalidRequest(f"The body is not JSON: {_json_reason(details[0])}.", code=_NOT_JSON)
    sentences = [_sentence(detail, model) for detail in details[:MAX_FAULTS_NAMED]]
    if len(details) > MAX_FAULTS_NAMED:
        sentences.append(f"{len(details) - MAX_FAULTS_NAMED} more faults are not listed.")
    return InvalidRequest(" ".join(sentences), param=_param(details[0]))


def _param(detail: ErrorDetails) -> str | None:
    return path_of(detail["loc"]) or detail.get("ctx", {}).get("param")


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    path, location = path_of(detail["loc"]), detail["loc"]
    match detail["type"]:
        case "extra_forbidden":
            known = f"; allowed: {', '.join(model.model_fields)}" if len(location) == 1 else ""
            return f"{path} is not a field of this API, leave it out{known}."
        case "missing":
            return f"{path} is missing."
        case "conflict":
            return f"{detail['msg']}."
        case kind if kind in _OWN_WORDS:
            return f"{path} {detail['msg']}."
    given = f"{path or 'The body'} {_shown(detail['input'])}"
    field = str(location[0]) if location else ""
    words = allowed_values(model).get(field)
    if words is None:
        return f"{given}; it must be {_rule(detail)}."
    return f"{given}; {'allowed:' if path == field else f'{field} takes'} {words}."


def _shown(given: object) -> str:
    """A short value as it was sent; of texts and lists only their size, for they are a prompt's."""
    match given:
        case None | bool():
            return f"is {json.dumps(given)}"
        case int() | float():
            shown = str(given)
            return f"is {shown if len(shown) <= 30 else shown[:27] + '...'}"
        case str():
            return f"is a string of {len(given)} character{'s' * (len(given) != 1)}"
        case list():
            return f"is a list of {len(given)}"
        case Mapping():
            return f"is an object of {len(given)} field{'s' * (len(given) != 1)}"
    return "is something else"


def _rule(detail: ErrorDetails) -> str:
    """What pydantic wanted, without its words for it."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "literal_error":
            return str(context["expected"])
        case "too_short":
            return f"a list of at least {context['min_length']}"
        case "too_long":
            return f"a list of at most {context['max_length']}"
    return _KINDS.get(detail["type"], "of another kind")


def _json_reason(detail: ErrorDetails) -> str:
    message = detail["msg"].removeprefix("Invalid JSON: ")
    return message if len(message) <= 300 else message[:297] + "..."
