"""What a tier is: records by namespace and key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from chiasm_contract.block_guard import Verdict
from chiasm_contract.block_record import Header, Holding
from chiasm_contract.block_wire import Tier as Place

from chiasm_sidecar.kv.namespaces import Namespace


class TierFailed(Exception):
    """A tier could not do what was asked; says what, never with an address or a secret in it."""


class Tier(Protocol):
    """One place for records. Every call that is awaited, but `close`, may raise TierFailed."""

    place: Place

    async def open(self) -> None:
        """Get ready; before that, everything is absent and nothing is taken.

        Called again after a TierFailed.
        """

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The bytes under each key, unjudged; None where there are none."""

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        """Keep a record: use when it is kept now, else why not.

        The first record under a key stays; one that contradicts it takes both out.
        """

    async def drop(self, namespace: Namespace, key: bytes) -> None:
        """Take out what lies under a key; never called during a put (level.py)."""

    async def retire(self, prefix: str) -> bool:
        """Set up the tombstone: from now on no put under the prefix succeeds, whoever calls.

        Whether it did not stand already.
        """

    async def sweep(self, prefix: str, max_records: int) -> int:
        """Remove about so many records of a retired prefix; how many it were, 0: none is left."""

    def tombstones(self) -> Iterable[str]:
        """Prefixes that are retired here already, whose sweep may not have come to its end."""

    async def close(self) -> None:
        """Give back what the tier holds."""

    def touch(self, namespace: Namespace, keys: Iterable[bytes]) -> None:
        """These records were of use; a hint for what goes first."""

    def drain(self, namespaces: frozenset[str]) -> None:
        """These go first when room is needed; a hint."""

    def bytes_by_namespace(self) -> Mapping[str, int]:
        """What is held here; empty where others hold it for us."""

    def bytes_by_holding(self) -> Mapping[Holding, int]:
        """The same by what it is."""
