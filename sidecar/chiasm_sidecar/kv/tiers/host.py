"""Records in this process's memory, the nearest tier: bounded, gone with the process."""

from __future__ import annotations

from collections.abc import Sequence

from chiasm_contract.block_guard import USE, Outcome, Verdict, judge_rewrite
from chiasm_contract.block_record import Header, parse_header
from chiasm_contract.block_wire import Tier as Place
from chiasm_contract.tiers import begins

from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.bounded import Bounded

# Python's own bytes around each record: object, key, entries of dicts and heaps.
_OVERHEAD_BYTES = 700
_TOO_LARGE = Verdict(Outcome.MISS, "busy")
_RETIRED = Verdict(Outcome.MISS, "retired")


class HostTier(Bounded):
    """A dict of records and the ledger that bounds it."""

    place = Place.HOST

    def __init__(self, max_bytes: int, namespace_share: float) -> None:
        super().__init__(max_bytes, namespace_share)
        self._records: dict[str, dict[bytes, bytes]] = {}

    async def open(self) -> None:
        """Empty at first."""

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """References to what is held; nothing is copied."""
        return list(map(self._records.get(namespace.name, {}).get, keys))

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        """Keep a reference to the record."""
        name, key = namespace.name, header.block_key
        if self._is_retired(name):
            return _RETIRED
        if self._ledger.has(name, key):
            stored = self._header(name, key)
            if stored is not None:
                verdict = judge_rewrite(stored, header)
                if verdict.outcome is Outcome.QUARANTINE:
                    self._forget(name, key)
                return verdict
            self._forget(name, key)
        gone = self._ledger.add(name, key, self._taken_bytes(record), header.holding)
        if gone is None:
            return _TOO_LARGE
        for other, evicted in gone:
            self._remove(other, evicted)
        self._keep(name, key, record)
        return USE

    async def drop(self, namespace: Namespace, key: bytes) -> None:
        """Forget a record."""
        self._forget(namespace.name, key)

    async def retire(self, prefix: str) -> bool:
        """No put under the prefix succeeds any more."""
        stood = prefix in self._retired
        self._retired.add(prefix)
        return not stood

    async def sweep(self, prefix: str, max_records: int) -> int:
        """Forget up to so many records."""
        found = [name for name in self._ledger.bytes_by_namespace() if begins(name, prefix)]
        chosen = [(name, key) for name in found for key in self._ledger.keys(name, max_records)]
        for name, key in chosen[:max_records]:
            self._forget(name, key)
        return min(len(chosen), max_records)

    async def close(self) -> None:
        """Nothing outlives the process."""

    def _forget(self, name: str, key: bytes) -> None:
        self._ledger.remove(name, key)
        self._remove(name, key)

    # What arena.py does in another way.

    def _taken_bytes(self, record: bytes) -> int:
        return len(record) + _OVERHEAD_BYTES

    def _header(self, name: str, key: bytes) -> Header | None:
        return parse_header(self._records[name][key])

    def _keep(self, name: str, key: bytes, record: bytes) -> None:
        self._records.setdefault(name, {})[key] = record

    def _remove(self, name: str, key: bytes) -> None:
        records = self._records.get(name)
        if records is not None:
            records.pop(key, None)
            if not records:
                del self._records[name]
