"""One worker's connection after HELLO: its identity, its slots, its generation.

Each call is checked again: the sidecar may have stopped admitting this worker since (unavailable),
or admit another one (the connection ends, for its identity is no longer anyone's). What carries an
older generation than the latest of the connection was asked or computed before a swap: rejected.

Must not know: sockets, tiers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from chiasm_contract import block_wire as wire
from chiasm_contract.block_guard import UNAVAILABLE, Outcome, Verdict
from chiasm_contract.block_record import record_bytes
from chiasm_contract.messages import IdentityReport
from chiasm_contract.timeline import Detail, Span
from chiasm_contract.trace_context import TraceContext

from chiasm_sidecar.guard import judge
from chiasm_sidecar.kv.fetching import Fetching
from chiasm_sidecar.kv.meters import Meters, place_name
from chiasm_sidecar.kv.namespaces import Namespace, Release
from chiasm_sidecar.kv.staging import Staging
from chiasm_sidecar.kv.store import BlockStore, Look, Reading

Admitted = Callable[[], IdentityReport | None]
Send = Callable[[wire.Kind, bytes], None]
# Whose request a tier was read for, and what came of it.
Tell = Callable[[TraceContext, Span], None]
RefusalReason = Literal[
    "not_admitted", "incarnation", "identity", "generation", "version", "staging"
]

_OUTDATED = Verdict(Outcome.REJECT, "generation")
# Records of one STORE that are copied and judged before the event loop gets its turn.
_STORE_BYTES = 8 * 2**20
_MAX_NAMESPACES = 4096


def _span(look: Look, num_found: int) -> Span:
    """A look at a tier, for the trace of the request that it was for; found is what was of use."""
    place = place_name(look.place)
    attributes: dict[str, Detail] = {
        "tier": place,
        "asked_blocks": look.num_keys,
        "found_blocks": num_found,
    }
    fault = "" if look.answered else "unavailable"
    return Span(f"tier {place}", look.start, look.end, -1, attributes, fault)


class SessionEnded(Exception):
    """This connection is of no use any more; says why."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection is not served: a word for counters, and a sentence."""

    reason: RefusalReason
    message: str


def refusal(
    hello: wire.Hello, admitted: IdentityReport | None, latest_gen: int
) -> Refusal | IdentityReport:
    """Why a worker may not use the service, naming the field; the admitted identity when it may.

    `latest_gen` is the highest engine_gen heard from the admitted process so far.
    """
    if admitted is None:
        words = "The worker is not admitted yet; say HELLO again when its pod is ready."
        return Refusal("not_admitted", words)
    if hello.incarnation != admitted.incarnation:
        words = f"incarnation is {hello.incarnation!r}, expected {admitted.incarnation!r}."
        return Refusal("incarnation", words)
    report = IdentityReport(
        compute_fp=hello.compute_fp,
        repr_fp=hello.repr_fp,
        incarnation=hello.incarnation,
        fields=hello.fields,
    )
    verdict = judge(admitted.fields, report)
    if not verdict.admitted:
        return Refusal("identity", verdict.message)
    if hello.engine_gen < latest_gen:
        words = f"engine_gen is {hello.engine_gen}, and was {latest_gen} already."
        return Refusal("generation", words)
    return admitted


@dataclass
class Session:
    """An admitted connection.

    Attributes:
        engine_gen: the latest that the worker has named.
    """

    identity: IdentityReport
    admitted: Admitted
    staging: Staging
    store: BlockStore
    meters: Meters
    release: Release
    engine_gen: int
    timeout_seconds: float
    tell: Tell | None = None
    _namespaces: dict[bytes, Namespace] = field(default_factory=dict)

    async def fetch(self, body: memoryview, send: Send) -> None:
        """Answer FETCH, and learn from it once the answer is on its way.

        Raises: ValueError for a body that is no FETCH, SessionEnded.
        """
        fetch = wire.decode_fetch(body)
        count = sum(len(group.keys) for group in fetch.groups)
        self.meters.wanted(count)
        verdict = self._standing(fetch.engine_gen, count)
        if verdict is not None:
            send(wire.Kind.FOUND, wire.encode_found([wire.Found(verdict)] * count))
            return
        namespace = self._namespace(fetch.scope_fp)
        deadline = self.store.clock() + self.timeout_seconds

        async def read(keys: Sequence[bytes]) -> Reading:
            return await self.store.read(namespace, keys, deadline, self.timeout_seconds / 2)

        fetching = Fetching(read, self.staging)
        send(wire.Kind.FOUND, wire.encode_found(await fetching.groups(fetch.groups)))
        trace = TraceContext.from_bytes(fetch.trace)
        if self.tell is not None and trace is not None:
            for _, reading in fetching.readings:
                for look in reading.looks:
                    self.tell(trace, _span(look, reading.places.count(look.place)))
        for keys, reading in fetching.readings:
            await self.store.learn(namespace, keys, reading)

    async def keep(self, body: memoryview, send: Send) -> None:
        """Answer STORE: copy the slots out, judge the copies, offer them to the tiers.

        Raises: ValueError for a body that is no STORE or names slots that are not the worker's,
        SessionEnded.
        """
        store = wire.decode_store(body)
        self.staging.slots.offer(store.slots)
        verdict = self._standing(store.engine_gen, len(store.slots))
        if verdict is None:
            verdicts = await self._offer(self._namespace(store.scope_fp), store.slots)
        else:
            verdicts = [verdict] * len(store.slots)
        self.staging.slots.give_back(store.slots)
        stored = [wire.Stored(*pair) for pair in zip(store.slots, verdicts, strict=True)]
        send(wire.Kind.STORED, wire.encode_stored(stored))

    async def _offer(self, namespace: Namespace, slots: Sequence[int]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        size = record_bytes(self.release.payload_bytes)
        at_once = max(1, _STORE_BYTES // size)
        for start in range(0, len(slots), at_once):
            if start:
                await asyncio.sleep(0)
            records = [self.staging.read(slot) for slot in slots[start : start + at_once]]
            verdicts += await self.store.offer(namespace, records)
        return verdicts

    def give_back(self, body: memoryview) -> None:
        """RELEASE: the worker has read these slots.

        Raises: ValueError for a body that is no RELEASE or names slots that were not handed out.
        """
        self.staging.slots.release(wire.decode_slots(body))

    def _standing(self, engine_gen: int, count: int) -> Verdict | None:
        """The one verdict on all of a call; None when each block is to be looked at.

        Raises: SessionEnded.
        """
        admitted = self.admitted()
        if admitted is None:
            return UNAVAILABLE
        if admitted is not self.identity:
            if admitted != self.identity:
                raise SessionEnded("another worker is admitted now")
            self.identity = admitted
        if engine_gen < self.engine_gen:
            self.meters.outdated(count)
            return _OUTDATED
        self.engine_gen = engine_gen
        self.meters.generation(engine_gen)
        return None

    def _namespace(self, scope_fp: bytes) -> Namespace:
        namespace = self._namespaces.get(scope_fp)
        if namespace is None:
            if len(self._namespaces) == _MAX_NAMESPACES:
                self._namespaces.clear()
            namespace = self._namespaces[scope_fp] = self.release.namespace(scope_fp)
        return namespace
