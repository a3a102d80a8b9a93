"""The one module that talks to the block service: one connection, kept up as long as it is wanted.

Without a connection every question is answered at once with nothing, and nothing is offered. A
connection is made again after a pause that doubles up to a bound and varies, so that workers do not
come back all at once. Whatever the service says that it may not say ends the connection.

Invariant: a read slot that the service handed out is given back exactly once, also when nobody
waits for it any more; slots of a connection that has gone are given back by its end.

Must not know: the pool, what a block means. Use from one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chiasm_contract.block_guard import Outcome, Verdict
from chiasm_contract.block_wire import (
    Fetch,
    Found,
    Hello,
    Kind,
    Store,
    Stored,
    Welcome,
    decode_found,
    decode_stored,
    encode_fetch,
    encode_slots,
    encode_store,
    frame,
    frame_length,
    split_frame,
)

from chiasm_worker.tiers.link import Fetched, Namespace, Offer, TierLink
from chiasm_worker.tiers.staging import Staging

logger = logging.getLogger(__name__)

_GREETING_SECONDS = 5.0
_DROPPED = Verdict(Outcome.MISS, "dropped")


class ServiceFault(Exception):
    """The block service cannot be used as it is now; says why."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts to connect: doubling, bounded, each between half and all of it."""

    first_seconds: float = 0.1
    last_seconds: float = 10.0

    def seconds(self, num_failures: int, luck: float) -> float:
        """The pause after so many failures in a row; `luck` is from 0 to 1."""
        whole = min(self.last_seconds, self.first_seconds * 2.0 ** min(num_failures - 1, 32))
        return whole * (0.5 + 0.5 * luck)


class _Connection:
    """A greeted connection and the calls that wait on it."""

    def __init__(
        self, writer: asyncio.StreamWriter, namespace: Namespace, staging: Staging
    ) -> None:
        self.namespace = namespace
        self.staging = staging
        self._writer = writer
        self._next_call = 1
        self.fetches: dict[int, tuple[tuple[bytes, ...], asyncio.Future[list[Found]]]] = {}
        self.stores: dict[int, Offer] = {}

    def ask(self, kind: Kind, body: bytes) -> int:
        """Send a frame; returns the number of the call."""
        call, self._next_call = self._next_call, (self._next_call + 1) % 2**32
        self._writer.write(frame(kind, call, body))
        return call

    def release(self, slots: Sequence[int]) -> None:
        """Give read slots back."""
        if slots and not self._writer.is_closing():
            self.ask(Kind.RELEASE, encode_slots(slots))

    def abandon(self, answer: asyncio.Future[list[Found]]) -> None:
        """Nobody takes this answer: give its slots back, now or when it comes."""
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            self.release(_slots(answer.result()))
        answer.cancel()

    def close(self) -> None:
        """End it; whoever waits learns so."""
        self._writer.close()
        for _, answer in self.fetches.values():
            if not answer.done():
                answer.set_exception(ServiceFault("The block service is gone."))
                answer.exception()  # Whoever stopped waiting need not look.


class BlockClient:
    """The worker's side of the block service.

    Args:
        socket_path: where the service listens.
        incarnation: of this process.
        link: shared with the engine's thread.
    """

    def __init__(
        self,
        socket_path: Path,
        incarnation: str,
        link: TierLink,
        backoff: Backoff | None = None,
    ) -> None:
        self._socket_path = socket_path
        self._incarnation = incarnation
        self._link = link
        self._not_kept: Callable[[bytes], object] = lambda _: None
        self._backoff = backoff or Backoff()
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._num_failures = 0

    @property
    def is_connected(self) -> bool:
        """Whether the service has welcomed this worker."""
        return self._connection is not None

    def start(self, namespace: Namespace, not_kept: Callable[[bytes], object]) -> None:
        """Connect, and again whenever the connection ends, for blocks of this namespace.

        `not_kept` takes the keys of blocks that were offered but not kept.
        """
        self._not_kept = not_kept
        self._num_failures = 0
        self._task = asyncio.create_task(self._stay_connected(namespace))

    async def stop(self) -> None:
        """End the connection; nothing of it is used from here on."""
        self._disconnect()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def fetch(self, fetch: Fetch, limit_seconds: float) -> Fetched | None:
        """What the tiers have of these blocks; None when nobody says so in time.

        The slots of an answer are the caller's to `release`; those of one that comes too late are
        given back here.
        """
        connection, counters = self._connection, self._link.counters
        if connection is None:
            counters.fetches["unavailable"] += 1
            return None
        keys = tuple(key for group in fetch.groups for key in group.keys)
        answer: asyncio.Future[list[Found]] = asyncio.get_running_loop().create_future()
        connection.fetches[connection.ask(Kind.FETCH, encode_fetch(fetch))] = (keys, answer)
        found: list[Found] | None = None
        try:
            async with asyncio.timeout(limit_seconds):
                found = await answer
        except TimeoutError:
            counters.fetches["timeout"] += 1
            return None
        except ServiceFault:
            counters.fetches["unavailable"] += 1
            return None
        finally:
            if found is None:
                connection.abandon(answer)
        counters.fetches["answered"] += 1
        counters.found.update(each.verdict for each in found)
        return Fetched(fetch.engine_gen, connection.staging, dict(zip(keys, found, strict=True)))

    def release(self, fetched: Fetched) -> None:
        """Give the slots of an answer back."""
        connection = self._connection
        if connection is not None and connection.staging is fetched.staging:
            connection.release(fetched.slots)

    def store(self, offers: Sequence[Offer]) -> None:
        """Hand written slots over; those of another connection or generation are dropped."""
        connection = self._connection
        for offer in offers:
            if connection is None or connection.staging is not offer.staging:
                self._link.counters.stored[_DROPPED] += len(offer.keys_by_slot)
            elif offer.engine_gen != self._link.engine_gen:
                self._link.counters.stored[_DROPPED] += len(offer.keys_by_slot)
                offer.staging.give_back(offer.keys_by_slot)
            else:
                slots, scope_fp = tuple(offer.keys_by_slot), bytes.fromhex(offer.scope_fp)
                body = encode_store(Store(offer.engine_gen, scope_fp, slots))
                connection.stores[connection.ask(Kind.STORE, body)] = offer

    async def _stay_connected(self, namespace: Namespace) -> None:
        while True:
            try:
                await self._serve_one(namespace)
            except (OSError, EOFError, ValueError, TimeoutError, ServiceFault) as error:
                if self._num_failures == 0:
                    logger.info("Own memory only, until the block service takes part: %s", error)
            self._disconnect()
            self._num_failures += 1
            await asyncio.sleep(self._backoff.seconds(self._num_failures, random.random()))  # noqa: S311 - spreads load

    async def _serve_one(self, namespace: Namespace) -> None:
        """One connection from its first frame to its end."""
        reader, writer = await asyncio.open_unix_connection(self._socket_path)
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                welcome = await self._greet(reader, writer, namespace)
            staging = Staging(welcome, namespace.payload_bytes)
            connection = _Connection(writer, namespace, staging)
            if self._link.engine_gen != namespace.engine_gen:
                raise ServiceFault("The engine's generation passed while connecting.")
            self._connection, self._link.staging = connection, staging
            logger.info("Cache blocks are kept by the block service at %s", self._socket_path)
            while True:
                answer = await _read_frame(reader)
                self._take(connection, *answer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, namespace: Namespace
    ) -> Welcome:
        hello = Hello(
            incarnation=self._incarnation,
            engine_gen=namespace.engine_gen,
            compute_fp=namespace.compute_fp,
            repr_fp=namespace.repr_fp,
            fields=dict(namespace.fields),
            payload_bytes=namespace.payload_bytes,
        )
        writer.write(frame(Kind.HELLO, 0, hello.model_dump_json().encode()))
        kind, _, body = await _read_frame(reader)
        if kind is Kind.REFUSED:
            raise ServiceFault(f"The block service refuses: {bytes(body).decode(errors='replace')}")
        if kind is not Kind.WELCOME:
            raise ServiceFault(f"The block service greets with {kind.name}.")
        return Welcome.model_validate_json(bytes(body))

    def _take(self, connection: _Connection, kind: Kind, call: int, body: memoryview) -> None:
        """One answer. Raises: ServiceFault or ValueError for one that cannot be."""
        if kind is Kind.FOUND and call in connection.fetches:
            keys, answer = connection.fetches[call]
            found = decode_found(body)
            _check_found(found, len(keys), connection.staging.num_read_slots)
            del connection.fetches[call]
            if answer.done():  # Nobody waits any more.
                connection.release(_slots(found))
            else:
                answer.set_result(found)
        elif kind is Kind.STORED and call in connection.stores:
            self._take_stored(connection, connection.stores.pop(call), decode_stored(body))
        elif kind is Kind.REFUSED and call in connection.fetches:
            _, answer = connection.fetches.pop(call)
            if not answer.done():
                answer.set_exception(ServiceFault("The block service refuses to answer."))
        else:
            raise ServiceFault(f"The block service sends {kind.name} for call {call}.")
        self._num_failures = 0

    def _take_stored(self, connection: _Connection, offer: Offer, stored: Sequence[Stored]) -> None:
        if {each.slot for each in stored} != set(offer.keys_by_slot):
            raise ServiceFault("The block service answers for other slots than it was given.")
        connection.staging.give_back(offer.keys_by_slot)
        for each in stored:
            self._link.counters.stored[each.verdict] += 1
            kept = each.verdict.outcome is Outcome.USE or each.verdict.detail == "stored"
            if not kept:
                self._not_kept(offer.keys_by_slot[each.slot])

    def _disconnect(self) -> None:
        connection, self._connection, self._link.staging = self._connection, None, None
        if connection is not None:
            connection.close()


async def _read_frame(reader: asyncio.StreamReader) -> tuple[Kind, int, memoryview]:
    length = frame_length(await reader.readexactly(4))
    return split_frame(await reader.readexactly(length))


def _slots(found: Sequence[Found]) -> list[int]:
    return [each.slot for each in found if each.slot >= 0]


def _check_found(found: Sequence[Found], num_keys: int, num_read_slots: int) -> None:
    """Raise ServiceFault unless each key has one answer, and each record a read slot of its own."""
    slots = [each.slot for each in found if each.verdict.outcome is Outcome.USE]
    if len(found) != num_keys:
        raise ServiceFault(f"The block service answers {len(found)} of {num_keys} keys.")
    if len(set(slots)) < len(slots) or not all(0 <= slot < num_read_slots for slot in slots):
        raise ServiceFault(f"The block service names slots {slots} of {num_read_slots}.")
    if any(each.slot >= 0 for each in found if each.verdict.outcome is not Outcome.USE):
        raise ServiceFault("The block service names slots without a record.")
