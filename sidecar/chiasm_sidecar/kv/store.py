"""All tiers as one: read from the nearest, offered to those that take the kind.

Whatever comes out of a tier or from the worker is judged here before anyone gets it, and what is
not of use is taken out of its tier.

Must not know: connections, slots, how a tier keeps its records.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash
from chiasm_contract.block_batch import judge_records
from chiasm_contract.block_guard import ABSENT, UNAVAILABLE, USE, Outcome, Verdict
from chiasm_contract.block_record import (
    HEADER_BYTES,
    Header,
    MalformedRecord,
    parse_header,
)
from chiasm_contract.block_wire import Tier as Place
from chiasm_contract.messages import HeldNamespace, HeldNamespaces

from chiasm_sidecar.kv.meters import Meters, Op, place_name
from chiasm_sidecar.kv.namespaces import Namespace, Registry, Release, State, release_of
from chiasm_sidecar.kv.removal import PAUSES_SECONDS, Remover
from chiasm_sidecar.kv.tiers.level import Level

log = logging.getLogger("chiasm.sidecar.kv")

RETIRED = Verdict(Outcome.MISS, "retired")
BUSY = Verdict(Outcome.MISS, "busy")
_NO_KEY = bytes(32)


class Look(NamedTuple):
    """One tier was asked for some keys, and answered in time or did not."""

    place: Place
    start: float
    end: float
    num_keys: int
    answered: bool


@dataclass(slots=True)
class Reading:
    """What was found under some keys; a record is there exactly where the verdict is use.

    Attributes:
        began: the latest removal when the read began (removal.py).
        looks: which tiers were asked, in order.
    """

    verdicts: list[Verdict]
    records: list[bytes | None]
    places: list[Place]
    began: int
    looks: list[Look] = field(default_factory=list)


class BlockStore:
    """The tiers, nearest first."""

    def __init__(
        self,
        levels: Sequence[Level],
        registry: Registry,
        meters: Meters,
        clock: Callable[[], float] = time.monotonic,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        """`pauses_seconds` are those before a tier that failed is asked again to remove."""
        self.levels = levels
        self.registry = registry
        self.clock = clock
        self._meters = meters
        self.remover = Remover(levels, pauses_seconds)
        by_place = {level.tier.place: level for level in levels}
        meters.follow(
            by_place,
            lambda place, state: self._bytes(by_place[place], state),
            lambda place, holding: by_place[place].tier.bytes_by_holding().get(holding, 0),
            lambda place: by_place[place].breaker.open,
            lambda place: by_place[place].num_queued_bytes,
        )

    def admit(self, release: Release) -> None:
        """This identity is served from now on; what belongs to others goes first."""
        self.registry.admit(release.prefix)
        self.recount()

    def recount(self) -> None:
        """Tell the tiers which of the namespaces that they hold go first."""
        for level in self.levels:
            held = level.tier.bytes_by_namespace()
            level.tier.drain(self.registry.draining(held))

    async def read(
        self, namespace: Namespace, keys: Sequence[bytes], deadline: float, fair_seconds: float
    ) -> Reading:
        """The nearest record of use under each key, by a time on the store's clock."""
        count = len(keys)
        began = self.remover.removals.latest
        reading = Reading([ABSENT] * count, [None] * count, [Place.NONE] * count, began)
        if not self.registry.open(namespace.name):
            reading.verdicts = [RETIRED] * count
            return reading
        missing = list(range(count))
        some_not_asked = False
        for level in self.levels:
            if not missing:
                break
            wanted = keys if len(missing) == count else [keys[i] for i in missing]
            asked = time.perf_counter()
            records = await level.get_many(namespace, wanted, deadline, fair_seconds)
            ended, answered = time.perf_counter(), records is not None
            reading.looks.append(Look(level.tier.place, asked, ended, len(wanted), answered))
            if records is None:
                some_not_asked = True
            else:
                records = self._standing(namespace, wanted, records, began)
                missing = self._take(level, namespace, keys, missing, records, reading)
        if some_not_asked:
            for i in missing:
                if reading.verdicts[i] == ABSENT:
                    reading.verdicts[i] = UNAVAILABLE
        return reading

    def _standing(
        self,
        namespace: Namespace,
        keys: Sequence[bytes],
        records: Sequence[bytes | None],
        began: int,
    ) -> Sequence[bytes | None]:
        """What a tier gave, without what was removed since the read began."""
        if not self.registry.open(namespace.name):
            return [None] * len(keys)
        removals = self.remover.removals
        if removals.none_since(began):
            return records
        pairs = zip(keys, records, strict=True)
        return [None if removals.overtook((namespace.name, k), began) else r for k, r in pairs]

    def _take(
        self,
        level: Level,
        namespace: Namespace,
        keys: Sequence[bytes],
        missing: list[int],
        records: Sequence[bytes | None],
        reading: Reading,
    ) -> list[int]:
        """Judge what a tier gave; returns what is still missing."""
        place = level.tier.place
        given = [record for record in records if record]
        if not given:
            return missing
        if len(given) == len(keys):
            verdicts = self._judge("get_kv", place, namespace, keys, given)
            if verdicts.count(USE) == len(keys):
                reading.verdicts, reading.records = verdicts, list(given)
                reading.places = [place] * len(keys)
                return []
            there = missing
        else:
            there = [i for i, record in zip(missing, records, strict=True) if record]
            verdicts = self._judge("get_kv", place, namespace, [keys[i] for i in there], given)
        bad = []
        for i, record, verdict in zip(there, given, verdicts, strict=True):
            reading.verdicts[i] = verdict
            if verdict.outcome is Outcome.USE:
                reading.records[i], reading.places[i] = record, place
            else:
                bad.append((keys[i], record, verdict))
        if bad:
            self._expel(level, namespace, bad)
        return [i for i in missing if reading.records[i] is None]

    def _judge(
        self,
        op: Op,
        place: Place,
        namespace: Namespace,
        keys: Sequence[bytes],
        records: Sequence[bytes],
    ) -> list[Verdict]:
        end = HEADER_BYTES + namespace.shape.payload_bytes
        sums = [xxhash.xxh3_64_intdigest(memoryview(r)[HEADER_BYTES:end]) for r in records]
        begun = time.perf_counter()
        verdicts = judge_records(namespace.shape, keys, records, sums)
        self._meters.checked(place, op, verdicts, time.perf_counter() - begun)
        return verdicts

    def _expel(
        self, level: Level, namespace: Namespace, bad: list[tuple[bytes, bytes, Verdict]]
    ) -> None:
        """Take out what is not of use: (key, record, verdict); the reader does not wait for it."""
        for _, record, verdict in bad:
            if verdict.outcome is Outcome.QUARANTINE:
                self._meters.quarantined(len(record))
        key, _, verdict = bad[0]
        words = {
            "tier": place_name(level.tier.place),
            "namespace": namespace.name,
            "num_records": len(bad),
            "first_key": key.hex(),
            "outcome": verdict.outcome.name.lower(),
            "detail": verdict.detail,
        }
        log.warning("records are removed", extra={"fields": words})
        self.remover.expel(level, namespace, [key for key, _, _ in bad])

    async def close(self) -> None:
        """End what happens beside requests, and every tier."""
        await self.remover.close()
        for level in self.levels:
            await level.tier.close()

    async def learn(self, namespace: Namespace, keys: Sequence[bytes], reading: Reading) -> None:
        """After an answer: what was of use stays longer, and comes nearer unless it was removed."""
        for depth, level in enumerate(self.levels):
            place = level.tier.place
            found = [i for i, where in enumerate(reading.places) if where is place]
            if not found:
                continue
            records = [record for i in found if (record := reading.records[i])]
            self._meters.found(place, records)
            level.tier.touch(namespace, [keys[i] for i in found])
            for nearer in self.levels[:depth]:
                for i in reversed(found):  # the first of a chain go last
                    record = reading.records[i]
                    (standing,) = self._standing(namespace, [keys[i]], [record], reading.began)
                    if standing is not None:
                        await nearer.offer(namespace, parse_header(standing), standing)

    async def offer(self, namespace: Namespace, records: Sequence[bytes]) -> list[Verdict]:
        """Judge what the worker wrote and hand it to the tiers; use: at least one takes it."""
        if not self.registry.open(namespace.name):
            return [RETIRED] * len(records)
        headers = [_header(record) for record in records]
        keys = [_NO_KEY if header is None else header.block_key for header in headers]
        verdicts = self._judge("update_kv", Place.NONE, namespace, keys, records)
        for i in reversed(range(len(records))):  # the first of a chain go last
            header = headers[i]
            if header is not None and verdicts[i].outcome is Outcome.USE:
                verdicts[i] = await self._keep(namespace, header, records[i])
        return verdicts

    async def _keep(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        best = BUSY
        for level in self.levels:
            verdict = await level.offer(namespace, header, record)
            if verdict is None:
                continue
            if verdict.outcome is Outcome.QUARANTINE:
                self.remover.remove(namespace, header.block_key)
                return verdict
            if verdict.detail == "stored":
                return verdict
            if verdict.outcome is Outcome.USE:
                best = verdict
        return best

    async def write(self, level: Level) -> None:
        """Write for ever what is queued for a tier; of two contents under one key none stays."""
        async for namespace, key in level.writing():
            self.remover.remove(namespace, key)

    def held(self) -> HeldNamespaces:
        """What the tiers hold, by release; what is retired by the prefix that retired it."""
        held: dict[str, Counter[str]] = {prefix: Counter() for prefix in self.registry.ends()}
        states = dict(self.registry.ends())
        for level in self.levels:
            for name, size in level.tier.bytes_by_namespace().items():
                place = self.registry.ended_by(name) or release_of(name)
                held.setdefault(place, Counter())[place_name(level.tier.place)] += size
                states.setdefault(place, self.registry.state(name))
        return HeldNamespaces(
            namespaces=tuple(
                HeldNamespace(name=place, state=states[place].value, tier_bytes=dict(sizes))
                for place, sizes in sorted(held.items())
            )
        )

    def _bytes(self, level: Level, state: State) -> int:
        held = level.tier.bytes_by_namespace()
        return sum(size for name, size in held.items() if self.registry.state(name) is state)


def _header(record: bytes) -> Header | None:
    try:
        return parse_header(record)
    except MalformedRecord:
        return None
