"""What the tiers that keep their own ledger have in common: hints, sums and tombstones.

Must not know: how a record is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chiasm_contract.block_record import Holding
from chiasm_contract.tiers import begins

from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.ledger import Ledger


class Bounded:
    """A ledger, and the prefixes that are retired here."""

    def __init__(self, max_bytes: int, namespace_share: float) -> None:
        self._ledger = Ledger(max_bytes, namespace_share)
        self._retired: set[str] = set()

    def _is_retired(self, name: str) -> bool:
        return any(begins(name, prefix) for prefix in self._retired)

    def tombstones(self) -> Iterable[str]:
        """Those set up since the start, and those that were found then."""
        return tuple(self._retired)

    def touch(self, namespace: Namespace, keys: Iterable[bytes]) -> None:
        """Raise their credit."""
        self._ledger.touch(namespace.name, keys)

    def drain(self, namespaces: frozenset[str]) -> None:
        """These go first."""
        self._ledger.drain(namespaces)

    def bytes_by_holding(self) -> Mapping[Holding, int]:
        """What the records of each kind and modality take."""
        return self._ledger.bytes_by_holding()

    def bytes_by_namespace(self) -> Mapping[str, int]:
        """What each namespace takes."""
        return self._ledger.bytes_by_namespace()
