"""`spec.cost`: what a replica costs, for the running figure on a dashboard.

Nothing is billed or decided by it. It belongs to no revision: another price restarts no pod.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from chiasm_contract.api.fields import ApiModel, rule, rules

_AMOUNT = r"^(0|[1-9][0-9]{0,6})(\.[0-9]{1,6})?$"

Amount = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) else value),
    StringConstraints(pattern=_AMOUNT),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 14,
            **rules(
                rule(
                    f"string(self).matches(r'{_AMOUNT}')",
                    "must be 0 to 9999999 with at most six decimals, such as 2 or 2.50 "
                    "(quote decimals)",
                )
            ),
        }
    ),
]

_CODE = "^[A-Z]{3}$"

Currency = Annotated[
    str,
    StringConstraints(pattern=_CODE),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 16,
            **rules(
                rule(f"self.matches(r'{_CODE}')", "must be three capital letters, such as EUR")
            ),
        }
    ),
]


class Cost(ApiModel):
    """What a replica costs; the operator's metrics and the cost dashboard show what comes of it."""

    replica_hour: Amount = Field(
        description='Of one pod for one hour, with whatever belongs to it, such as "2.50".'
    )
    currency: Currency = Field(default="USD", description="Its code in three letters (ISO 4217).")

    def per_hour(self, replicas: int) -> float:
        """What so many replicas cost an hour, in units of the currency."""
        return float(Decimal(self.replica_hour) * replicas)
