"""How many bytes a bounded tier holds, and what it gives up next. Pure.

Greedy-dual with size and frequency, as in the worker's pool (L. Cherkasova, HPL-98-69R1, 1998): an
entry's credit is

    floor + uses x cost of its kind / bytes

and what goes is the entry of least credit, to which the floor then rises. Among equal entries that
is least-recently-used. Credits only rise between evictions, so the heaps keep what an entry's
credit was when it was queued, and a use costs no more than a few assignments: an entry that comes
up with too small a credit is queued again.

The cost is that of computing again, by kind, relative to text: keys and values of a picture need
its encoder before they can be computed. Records of one model are of one size, so the order between
kinds is all that counts.

A namespace that is over its share gives up its own; namespaces that drain go before all others.

Invariants, after every call: num_bytes is the sum over entries, and over holdings, and at most
max_bytes; no namespace is over its share.

Must not know: what lies where, clocks.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chiasm_contract.block_record import Holding, RecordKind

KIND_COST: Mapping[RecordKind, float] = {
    RecordKind.TEXT_KV: 1.0,
    RecordKind.MEDIA_KV: 3.0,
    RecordKind.CROSS_KV: 3.0,
    RecordKind.ENCODER_OUTPUT: 4.0,
}
_SLACK = 64


@dataclass(slots=True)
class _Entry:
    namespace: str
    key: bytes
    num_bytes: int
    cost: float
    holding: Holding
    credit: float = 0.0
    number: int = 0
    num_uses: int = 1
    there: bool = True


_Queue = list[tuple[float, int, _Entry]]


@dataclass(slots=True)
class _Shelf:
    """One namespace's entries."""

    entries: dict[bytes, _Entry] = field(default_factory=dict)
    queue: _Queue = field(default_factory=list)
    num_bytes: int = 0
    floor: float = 0.0


class Ledger:
    """Entries by namespace and key under one byte budget."""

    def __init__(self, max_bytes: int, namespace_share: float = 1.0) -> None:
        self.max_bytes = max_bytes
        self.share_bytes = int(max_bytes * namespace_share)
        self.num_bytes = 0
        self._floor = 0.0
        self._next = 0
        self._shelves: dict[str, _Shelf] = {}
        self._queue: _Queue = []
        self._num_entries = 0
        self._draining: frozenset[str] = frozenset()
        self._holdings: Counter[Holding] = Counter()

    def __len__(self) -> int:
        return self._num_entries

    def has(self, namespace: str, key: bytes) -> bool:
        """Whether there is such an entry."""
        shelf = self._shelves.get(namespace)
        return shelf is not None and key in shelf.entries

    def bytes_by_namespace(self) -> dict[str, int]:
        """What each namespace takes."""
        return {name: shelf.num_bytes for name, shelf in self._shelves.items()}

    def bytes_by_holding(self) -> Mapping[Holding, int]:
        """What the entries of each kind and modality take."""
        return self._holdings

    def keys(self, namespace: str, limit: int) -> list[bytes]:
        """Up to `limit` keys of a namespace."""
        shelf = self._shelves.get(namespace)
        return [] if shelf is None else list(itertools.islice(shelf.entries, limit))

    def drain(self, namespaces: frozenset[str]) -> None:
        """These go before all others from now on."""
        self._draining = namespaces

    def add(
        self, namespace: str, key: bytes, num_bytes: int, holding: Holding
    ) -> list[tuple[str, bytes]] | None:
        """Note a new entry; what had to go for it, or None when it can never fit."""
        if num_bytes > min(self.max_bytes, self.share_bytes):
            return None
        self.remove(namespace, key)
        gone = self._make_room(namespace, num_bytes)
        shelf = self._shelves.setdefault(namespace, _Shelf())
        cost = KIND_COST[holding.kind] / max(num_bytes, 1)
        entry = _Entry(namespace, key, num_bytes, cost, holding)
        shelf.entries[key] = entry
        shelf.num_bytes += num_bytes
        self.num_bytes += num_bytes
        self._holdings[holding] += num_bytes
        self._num_entries += 1
        self._credit(entry, shelf)
        for queue in (self._queue, shelf.queue):
            heapq.heappush(queue, (entry.credit, entry.number, entry))
        self._compact(shelf)
        return gone

    def touch(self, namespace: str, keys: Iterable[bytes]) -> None:
        """These were of use; the first of them go last."""
        shelf = self._shelves.get(namespace)
        if shelf is None:
            return
        for key in reversed(list(keys)):
            entry = shelf.entries.get(key)
            if entry is not None:
                entry.num_uses += 1
                self._credit(entry, shelf)

    def remove(self, namespace: str, key: bytes) -> None:
        """Forget an entry, if there is one."""
        shelf = self._shelves.get(namespace)
        entry = shelf.entries.pop(key, None) if shelf else None
        if shelf is None or entry is None:
            return
        entry.there = False
        shelf.num_bytes -= entry.num_bytes
        self.num_bytes -= entry.num_bytes
        self._holdings[entry.holding] -= entry.num_bytes
        self._num_entries -= 1
        if not shelf.entries:
            del self._shelves[namespace]

    def _credit(self, entry: _Entry, shelf: _Shelf) -> None:
        entry.credit = max(self._floor, shelf.floor) + entry.num_uses * entry.cost
        entry.number = self._next
        self._next += 1

    def _make_room(self, namespace: str, num_bytes: int) -> list[tuple[str, bytes]]:
        gone: list[tuple[str, bytes]] = []
        while (shelf := self._shelves.get(namespace)) and (
            shelf.num_bytes + num_bytes > self.share_bytes
        ):
            entry = _least(shelf.queue)
            shelf.floor = max(shelf.floor, entry.credit)
            self._give_up(entry, gone)
        while self.num_bytes + num_bytes > self.max_bytes:
            entry = self._victim()
            self._floor = max(self._floor, entry.credit)
            self._give_up(entry, gone)
        return gone

    def _victim(self) -> _Entry:
        for name in self._draining:
            shelf = self._shelves.get(name)
            if shelf is not None:
                return _least(shelf.queue)
        return _least(self._queue)

    def _give_up(self, entry: _Entry, gone: list[tuple[str, bytes]]) -> None:
        self.remove(entry.namespace, entry.key)
        gone.append((entry.namespace, entry.key))

    def _compact(self, shelf: _Shelf) -> None:
        """Drop what is gone from the heaps before it outweighs what is there."""
        for queue, count in ((self._queue, self._num_entries), (shelf.queue, len(shelf.entries))):
            if len(queue) > 2 * count + _SLACK:
                queue[:] = [(e.credit, e.number, e) for _, _, e in queue if e.there]
                heapq.heapify(queue)


def _least(queue: _Queue) -> _Entry:
    """The entry of least credit, which stays in the queue."""
    while True:
        credit, number, entry = queue[0]
        if not entry.there:
            heapq.heappop(queue)
        elif (credit, number) != (entry.credit, entry.number):
            heapq.heapreplace(queue, (entry.credit, entry.number, entry))
        else:
            return entry
