"""What a field accepts, in words, read from the request's own schema.

A field whose rule a schema cannot say in a short sentence brings the words itself (`in_words`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_WORDS = "x-allowed"


def in_words(words: str) -> dict[str, Any]:
    """The `json_schema_extra` of a field that accepts `words`."""
    return {_WORDS: words}


@functools.cache
def allowed_values(model: type[BaseModel]) -> Mapping[str, str]:
    """Field of `model` -> what it accepts; without the fields that are objects of their own."""
    properties = model.model_json_schema()["properties"]
    words = {name: _of(node) for name, node in properties.items()}
    return {name: said for name, said in words.items() if said}


def _of(node: Mapping[str, Any]) -> str:
    if _WORDS in node:
        return str(node[_WORDS])
    branches = [branch for branch in node.get("anyOf", ()) if branch.get("type") != "null"]
    if branches:
        said = [_of(branch) for branch in branches]
        return " or ".join(said) if all(said) else ""
    match node.get("type"):
        case "number":
            return "a number" + _range(node)
        case "integer":
            return "a whole number" + _range(node)
        case "boolean":
            return "true or false"
        case "string":
            return "a string"
    return ""


def _range(node: Mapping[str, Any]) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    above = node.get("exclusiveMinimum")
    if above is not None:
        return f" above {above:g} and up to {high:g}"
    return f" from {_number(low)} to {_number(high)}"


def _number(value: float | None) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
