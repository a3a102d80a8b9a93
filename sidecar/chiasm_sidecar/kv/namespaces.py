"""Where records of equal meaning lie together, and how such a place lives and ends. Pure.

A namespace is named by the first 16 hex digits of compute_fp, repr_fp and scope_fp. The name only
keeps things apart and findable: whether a record may be used is decided by its header. Prefixes
(`compute`, `compute-repr`) name all namespaces that begin so, for a release ends with all its
tenants.

    LIVE      read and written
    DRAINING  of an identity that this pod does not serve now: first to go when room is needed.
              Serving it again makes it live, still warm.
    RETIRED   a tombstone stands: neither read nor written, and being removed
    SWEPT     nothing is left but the tombstone, so that a late writer cannot bring it back

LIVE <-> DRAINING by what is admitted; to RETIRED only by someone's word (age says nothing about
whether another pod still uses it); RETIRED -> SWEPT when the sweep has found nothing; never back.

Must not know: clocks, files, tiers.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chiasm_contract.block_batch import ExpectedShape
from chiasm_contract.block_record import SCOPE_BYTES
from chiasm_contract.fingerprint import Value
from chiasm_contract.tiers import begins, release_prefix

_DIGITS = 16


class State(enum.StrEnum):
    """Where in its life a namespace is."""

    LIVE = "live"
    DRAINING = "draining"
    RETIRED = "retired"
    SWEPT = "swept"


@dataclass(frozen=True)
class Namespace:
    """A place for records, what each of them must be, and what it was made for."""

    name: str
    shape: ExpectedShape
    manifest: bytes


@dataclass(frozen=True)
class Release:
    """What a worker was admitted with: all namespaces of its tenants begin with `prefix`."""

    compute_fp: str
    repr_fp: str
    payload_bytes: int
    fields: Mapping[str, Value]

    @property
    def prefix(self) -> str:
        """compute-repr, 16 digits each."""
        return release_prefix(self.compute_fp, self.repr_fp)

    def namespace(self, scope_fp: bytes) -> Namespace:
        """The namespace of one scope; its manifest tells a person what it was."""
        manifest = {
            "compute_fp": self.compute_fp,
            "repr_fp": self.repr_fp,
            "scope_fp": scope_fp.hex(),
            "payload_bytes": self.payload_bytes,
            "fields": dict(self.fields),
        }
        return Namespace(
            f"{self.prefix}-{scope_fp.hex()[:_DIGITS]}",
            ExpectedShape(bytes.fromhex(self.repr_fp), scope_fp[:SCOPE_BYTES], self.payload_bytes),
            json.dumps(manifest, indent=1).encode(),
        )


def prefixes(name: str) -> list[str]:
    """All prefixes that name this namespace among others, itself last."""
    parts = name.split("-")
    return ["-".join(parts[:length]) for length in range(1, len(parts) + 1)]


def release_of(name: str) -> str:
    """The prefix that all tenants' namespaces of one release share."""
    return prefixes(name)[:2][-1]


class Registry:
    """What this pod admits, and what it was told to end: from that follows each state."""

    def __init__(self) -> None:
        self._admitted: str | None = None
        self._ends: dict[str, State] = {}

    def admit(self, prefix: str) -> None:
        """This identity is served from now on; those of others drain."""
        self._admitted = prefix

    def retire(self, prefix: str) -> None:
        """No record under the prefix is read or written from now on."""
        self._ends.setdefault(prefix, State.RETIRED)

    def state(self, name: str) -> State:
        """Where a namespace stands."""
        ended = [end for prefix, end in self._ends.items() if begins(name, prefix)]
        if ended:
            return State.RETIRED if State.RETIRED in ended else State.SWEPT
        if self._admitted is not None and not begins(name, self._admitted):
            return State.DRAINING
        return State.LIVE

    def ended_by(self, name: str) -> str | None:
        """The shortest retired prefix that names it."""
        return min((end for end in self._ends if begins(name, end)), key=len, default=None)

    def ends(self) -> Mapping[str, State]:
        """Every retired prefix, and how far its end has come."""
        return self._ends

    def open(self, name: str) -> bool:
        """Whether records of it may be read and written."""
        return not self._ends or self.state(name) in (State.LIVE, State.DRAINING)

    def draining(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these namespaces that go first when room is needed."""
        return frozenset(name for name in names if self.state(name) is not State.LIVE)

    def swept(self, prefix: str) -> None:
        """A sweep has found nothing under a retired prefix.

        Raises: ValueError when the prefix is not retired.
        """
        if self._ends.get(prefix) is not State.RETIRED:
            raise ValueError(f"{prefix} is swept, but it is not retired; a bug.")
        self._ends[prefix] = State.SWEPT
