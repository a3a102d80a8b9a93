"""A model's identity as people and tools read it: its digests, and the fields behind them.

What `chiasm fingerprint MODEL --json` writes and `chiasm fingerprint diff` compares.

Must not know: files, models. Pure functions of their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from chiasm_contract.fingerprint import (
    SHARED,
    Digest,
    Identity,
    Scope,
    Value,
    compute_fp,
    flatten,
    repr_fp,
    scope_fp,
)


class Manifest(BaseModel):
    """Three digests and every field behind them; the digests are always those of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    compute_fp: Digest
    repr_fp: Digest
    scope_fp: Digest
    fields: dict[str, Value]

    @classmethod
    def of(cls, identity: Identity, scope: Scope = SHARED) -> Self:
        """The manifest of an engine, for these readers."""
        scoped = {f"scope.{name}": value for name, value in flatten(scope).items()}
        return cls(
            compute_fp=compute_fp(identity.compute),
            repr_fp=repr_fp(identity.repr),
            scope_fp=scope_fp(scope),
            fields={**identity.fields(), **scoped},
        )

    @model_validator(mode="after")
    def _is_of_its_fields(self) -> Self:
        identity, scope = parsed(self.fields)
        digests = (compute_fp(identity.compute), repr_fp(identity.repr), scope_fp(scope))
        for name, digest in zip(("compute_fp", "repr_fp", "scope_fp"), digests, strict=True):
            if getattr(self, name) != digest:
                raise ValueError(f"{name} is not the digest of the fields beside it")
        return self

    def differences(self, other: Manifest) -> list[str]:
        """A sentence for each field in which two manifests, called A and B, differ."""
        return [
            f"{name} is {_shown(self.fields, name)} in A, {_shown(other.fields, name)} in B"
            for name in sorted(self.fields | other.fields)
            if _exact(self.fields, name) != _exact(other.fields, name)
        ]


def parsed(fields: Mapping[str, Value]) -> tuple[Identity, Scope]:
    """The closed field sets behind dotted names.

    Raises: pydantic.ValidationError naming a field that is unknown, missing or not resolved.
    """
    tenancy = {name: value for name, value in fields.items() if name.startswith("scope.")}
    rest = {name: value for name, value in fields.items() if name not in tenancy}
    scope = Scope.model_validate({name.removeprefix("scope."): v for name, v in tenancy.items()})
    return Identity.from_fields(rest), scope


def _exact(fields: Mapping[str, Value], name: str) -> tuple[type, Value] | None:
    return (type(fields[name]), fields[name]) if name in fields else None


def _shown(fields: Mapping[str, Value], name: str) -> str:
    return repr(fields[name]) if name in fields else "missing"
