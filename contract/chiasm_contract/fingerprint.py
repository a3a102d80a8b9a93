"""KV identity: what a cached vector was computed for, as three digests over closed field sets.

compute: what the numbers mean. repr: what the bytes mean. scope: who may read them. Each digest is
sha256 over a domain tag and the deterministic CBOR of {field number: value}. Every value is
resolved: "", "auto", null, NaN, a missing or an unknown field is an error, never a default.
Field numbers are for ever: a retired number is not used again, and a change of meaning takes a new
`SCHEMA`. Design note: ../../docs/identity.md.

Must not know: files, clocks, the environment, any network. Pure functions of their arguments.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from chiasm_contract import cbor

SCHEMA = 2

Value = str | int | float | bool | list[int]


def _resolved(value: str) -> str:
    if value.lower() in {"auto", "none", "null", "default", "unknown"}:
        raise ValueError(f"{value!r} is not resolved; an identity names what was really used")
    return value


def _of_one_form(value: float) -> float:
    if value == 0 and math.copysign(1, value) < 0:
        raise ValueError("-0.0 equals 0.0 but has other bytes; an identity says 0.0")
    return value


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_resolved)]
Number = Annotated[int, Field(ge=0, le=2**63)]
Real = Annotated[float, AfterValidator(_of_one_form)]


class _Identity(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Weights(_Identity):
    """sha256 over sorted (tensor name, dtype, shape, sha256 of its bytes) of each part."""

    language: Digest
    vision_encoder: Digest
    projector: Digest


class Model(_Identity):
    """What no tensor says: the sizes, norms, activations and layer choices that use the weights."""

    config: Digest


class Processor(_Identity):
    """How a picture becomes pixels and a chat becomes tokens."""

    config: Digest
    resize_backend: Word
    library_version: Word


class Position(_Identity):
    """The position scheme of the language model."""

    type: Word
    theta: Real
    scaling: Word
    sections: list[Number]
    window: Number


class Compute(_Identity):
    """What the numbers in a block mean."""

    weights: Weights
    model: Model
    processor: Processor
    position: Position
    compute_dtype: Word
    weight_quantization: Word
    calibration: Word
    attention_numerics: Word


class KvDtype(_Identity):
    """The stored type of each kind of block."""

    text: Word
    vision: Word


class Repr(_Identity):
    """What the bytes of a block mean."""

    schema_version: Number
    kv_dtype: KvDtype
    scale_mode: Word
    layout: Word
    block_size: Number
    num_layers: Number
    num_kv_heads: Number
    head_dim: Number
    parallel_degree: Number
    parallel_rank: Number


class Scope(_Identity):
    """Who may read a block."""

    tenant: Word
    adapter: Word
    track: Word


_NUMBERS: dict[str, dict[str, int]] = {
    "compute": {
        "weights.language": 1,
        "weights.vision_encoder": 2,
        "weights.projector": 3,
        "processor.config": 4,
        "processor.resize_backend": 5,
        "processor.library_version": 6,
        "position.type": 7,
        "position.theta": 8,
        "position.scaling": 9,
        "position.sections": 10,
        "position.window": 11,
        "compute_dtype": 12,
        "weight_quantization": 13,
        "calibration": 14,
        "attention_numerics": 15,
        "model.config": 16,
    },
    "repr": {
        "schema_version": 1,
        "kv_dtype.text": 2,
        "kv_dtype.vision": 3,
        "scale_mode": 4,
        "layout": 5,
        "block_size": 6,
        "num_layers": 7,
        "num_kv_heads": 8,
        "head_dim": 9,
        "parallel_degree": 10,
        "parallel_rank": 11,
    },
    "scope": {"tenant": 1, "adapter": 2, "track": 3},
}


class Identity(_Identity):
    """The readable manifest behind the digests of one engine."""

    compute: Compute
    repr: Repr

    def fields(self) -> dict[str, Value]:
        """Dotted field -> value, e.g. {"compute.position.theta": 10000.0, ...}."""
        return {
            **{f"compute.{name}": value for name, value in flatten(self.compute).items()},
            **{f"repr.{name}": value for name, value in flatten(self.repr).items()},
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Value]) -> Self:
        """The identity whose `fields()` these are.

        Raises: ValueError naming a field that is unknown, missing or not resolved.
        """
        tree: dict[str, Any] = {}
        for name, value in fields.items():
            *path, leaf = name.split(".")
            node = tree
            for step in path:
                node = node.setdefault(step, {})
                if not isinstance(node, dict):
                    raise ValueError(f"{name} stands below a field that has a value")
            if leaf in node:
                raise ValueError(f"{name} has both a value and fields below it")
            node[leaf] = value
        return cls.model_validate(tree)


def flatten(identity: BaseModel) -> dict[str, Value]:
    """Dotted field -> value of one closed field set, in declaration order."""
    fields: dict[str, Value] = {}

    def walk(prefix: str, node: Mapping[str, Any]) -> None:
        for name, value in node.items():
            if isinstance(value, dict):
                walk(f"{prefix}{name}.", value)
            else:
                fields[f"{prefix}{name}"] = value

    walk("", identity.model_dump())
    return fields


_DOMAINS: Mapping[type[_Identity], str] = {Compute: "compute", Repr: "repr", Scope: "scope"}


def encoded(fields: Compute | Repr | Scope) -> bytes:
    """The bytes that are digested: the domain's tag, then {field number: value}, both as CBOR."""
    domain = _DOMAINS[type(fields)]
    numbers = _NUMBERS[domain]
    tag = f"chiasm/{domain}/{SCHEMA}".encode()
    values = {numbers[name]: value for name, value in flatten(fields).items()}
    return cbor.encode(tag) + cbor.encode(values)


def _digest(fields: Compute | Repr | Scope) -> str:
    return hashlib.sha256(encoded(fields)).hexdigest()


def compute_fp(compute: Compute) -> str:
    """64 hex digits: equal exactly when two engines give a vector the same meaning."""
    return _digest(compute)


def repr_fp(representation: Repr) -> str:
    """64 hex digits: equal exactly when two engines lay a block out the same way."""
    return _digest(representation)


def scope_fp(scope: Scope) -> str:
    """64 hex digits: equal exactly when the same readers are allowed."""
    return _digest(scope)


# Of requests that no tenant stands behind. No tenant's MAC, 64 hex digits, is this word.
SHARED = Scope(tenant="shared", adapter="base", track="stable")
SHARED_SCOPE_FP = scope_fp(SHARED)


@dataclass(frozen=True)
class Difference:
    """One field in which an identity is not the expected one."""

    field: str
    expected: Value
    seen: Value | None

    def __str__(self) -> str:
        seen = "missing" if self.seen is None else repr(self.seen)
        return f"{self.field} is {seen}, expected {self.expected!r}"


def differences(expected: Mapping[str, Value], seen: Mapping[str, Value]) -> tuple[Difference, ...]:
    """Every field of `expected` (dotted names, may be a part of all) that `seen` has otherwise."""
    return tuple(
        Difference(name, value, seen.get(name))
        for name, value in sorted(expected.items())
        if name not in seen or type(seen[name]) is not type(value) or seen[name] != value
    )
