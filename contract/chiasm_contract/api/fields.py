"""The building blocks of a resource's schema: a strict base, quantities, CEL rules.

A CEL rule says in its message what is allowed, for the message is all that a person at kubectl
sees when the API server refuses a manifest.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    SerializationInfo,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from chiasm_contract import quantity

VALIDATIONS = "x-kubernetes-validations"


class ApiModel(BaseModel):
    """Base of everything inside a resource: camelCase outside, closed, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


def rule(expression: str, message: str, *, field: str | None = None) -> dict[str, str]:
    """One CEL rule; `field` (".name" relative to the rule's object) is where the error points."""
    entry = {"rule": expression, "message": message}
    return entry | ({"fieldPath": field} if field else {})


def rules(*entries: dict[str, str]) -> dict[str, Any]:
    """`json_schema_extra` of a model or field with these CEL rules."""
    return {VALIDATIONS: list(entries)}


def _checked(value: str) -> str:
    quantity.parse(value)
    return value


def _spelled(value: str, info: SerializationInfo) -> str:
    return str(quantity.parse(value)) if info.context == CANONICAL else value


# Context of `model_dump` under which equal quantities are spelled equally.
CANONICAL = "canonical"

Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) else value),
    AfterValidator(_checked),
    PlainSerializer(_spelled),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": quantity.PATTERN,
            "maxLength": 24,
        }
    ),
]

DnsName = Annotated[
    str, StringConstraints(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
]

# The name of an entry of a Secret's data.
SecretEntryName = Annotated[str, StringConstraints(max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]

# By which fields name a source of spec.config.environments.
SourceName = Annotated[
    str, StringConstraints(max_length=32, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
ONE_ORIGIN = rule("has(self.name) != has(self.source)", "set exactly one of name and source")

_PERCENT = r"^(0|[1-9][0-9]?|100)%$"


def _counted(value: int | str) -> int | str:
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{value} is negative; allowed are 0 and more, and shares such as 25%")
    elif not re.fullmatch(_PERCENT, value):
        raise ValueError(f"{value!r} is no share; allowed are 0% to 100% and whole numbers")
    return value


IntOrPercent = Annotated[
    int | str,
    AfterValidator(_counted),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": _PERCENT,
            "maxLength": 4,
            **rules(rule("!string(self).startsWith('-')", "must not be negative")),
        }
    ),
]


def at_least(minimum: str) -> dict[str, Any]:
    """`json_schema_extra` of a Quantity that must not be below `minimum`."""
    return rules(
        rule(
            f"quantity(string(self)).compareTo(quantity('{minimum}')) >= 0",
            f"must be at least {minimum}",
        )
    )


def count_of(amount: int | str, whole: int, *, up: bool) -> int:
    """What an `IntOrPercent` is of a whole; a share is rounded up or down, as Kubernetes does."""
    if isinstance(amount, int):
        return amount
    part = whole * int(amount.removesuffix("%")) / 100
    return ceil(part) if up else int(part)
