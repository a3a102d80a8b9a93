"""The identity fields that a resource may pin, and how their values are written as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from chiasm_contract.fingerprint import Identity, Value

_TEXT_PATTERNS = {
    "str": None,
    "int": r"^[0-9]+$",
    "float": r"^[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?$",
    "list": r"^\[[0-9, ]*\]$",
}


def _walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _walk(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


_FIELDS: dict[str, Any] = dict(_walk(Identity))
NAMES: tuple[str, ...] = tuple(sorted(_FIELDS))


def _kind(name: str) -> str:
    annotation = _FIELDS[name].annotation
    return annotation.__name__ if annotation in {str, int, float} else "list"


def pattern_groups() -> dict[str, list[str]]:
    """Pattern of the text -> the fields written that way (free text is left out)."""
    groups: dict[str, list[str]] = {}
    for name in NAMES:
        pattern = _TEXT_PATTERNS[_kind(name)]
        if any(getattr(item, "pattern", None) for item in _FIELDS[name].metadata):
            pattern = "^[0-9a-f]{64}$"
        if pattern:
            groups.setdefault(pattern, []).append(name)
    return groups


def to_text(value: Value) -> str:
    """`value` as it stands in a resource: words as they are, lists as JSON."""
    return value if isinstance(value, str) else re.sub(r"\s+", "", repr(value))


def parse(pinned: Mapping[str, str]) -> dict[str, Value]:
    """The typed identity fields behind `pinned`.

    Raises: ValueError naming the field when it is unknown or its text has the wrong form.
    """
    fields: dict[str, Value] = {}
    for name, text in pinned.items():
        if name not in _FIELDS:
            raise ValueError(f"{name!r} is no identity field; there are: {', '.join(NAMES)}.")
        kind: TypeAdapter[Value] = TypeAdapter(_FIELDS[name].rebuild_annotation())
        try:
            value = kind.validate_python(text) if _kind(name) == "str" else kind.validate_json(text)
        except ValidationError as error:
            raise ValueError(f"{name} cannot be {text!r}: {error.errors()[0]['msg']}.") from error
        fields[name] = value
    return fields
