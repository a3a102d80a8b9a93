"""The connection to the block service: what it may say, when it may go, who has which slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import Outcome
from chiasm_contract.block_record import SCOPE_BYTES
from chiasm_contract.block_wire import Fetch, Group, GroupKind
from chiasm_worker.tiers.client import Backoff, BlockClient
from chiasm_worker.tiers.link import Namespace, Offer, TierLink
from chiasm_worker.tiers.staging import Staging

from tests.worker.server.running_worker import until
from tests.worker.tiers.block_service import Service, serving
from tests.worker.tiers.records import NAMESPACE, SCOPE_FP, record

KEYS = tuple(bytes([i]) * 32 for i in range(4))
PATIENT = 60.0


def fetch(*keys: bytes) -> Fetch:
    return Fetch(3, bytes.fromhex(SCOPE_FP), (Group(GroupKind.CHAIN, keys),))


@asynccontextmanager
async def connected(
    service: Service, namespace: Namespace = NAMESPACE, wait: bool = True
) -> AsyncIterator[tuple[BlockClient, TierLink]]:
    link = TierLink()
    link.engine_gen = namespace.engine_gen
    not_kept: list[bytes] = []
    client = BlockClient(service.socket_path, "me", link, Backoff(0.005, 0.02))
    client.start(namespace, not_kept.append)
    try:
        if wait:
            await until(lambda: client.is_connected)
        yield client, link
    finally:
        await client.stop()
        assert link.staging is None


def honest(service: Service) -> None:
    for key in KEYS[:3]:
        service.records[key] = bytes(record(key, key * 4))


async def test_it_says_who_asks_and_gets_what_is_there(tmp_path: Path):
    async with serving(Service(tmp_path)) as service, connected(service) as (client, link):
        honest(service)
        [hello] = service.hellos
        assert (hello.incarnation, hello.engine_gen, hello.payload_bytes) == ("me", 3, 128)
        assert (hello.compute_fp, hello.repr_fp) == (NAMESPACE.compute_fp, NAMESPACE.repr_fp)
        assert hello.fields == {"compute.x": 1}
        fetched = await client.fetch(fetch(*KEYS), PATIENT)
        assert fetched is not None
        outcomes = [fetched.found[key].verdict.outcome for key in KEYS]
        assert outcomes == [Outcome.USE] * 3 + [Outcome.MISS]
        for key in KEYS[:3]:
            assert fetched.staging.record(fetched.found[key].slot) == record(key, key * 4)
        client.release(fetched)
        await until(lambda: not service.slots_out)
        assert link.counters.fetches == {"answered": 1}
        assert link.counters.found.total() == 4


async def test_an_answer_that_comes_too_late_gives_its_slots_back(tmp_path: Path):
    async with serving(Service(tmp_path)) as service, connected(service) as (client, link):
        honest(service)
        service.wait_before_found = asyncio.Event()
        assert await client.fetch(fetch(*KEYS), 0.01) is None
        leaving = asyncio.create_task(client.fetch(fetch(*KEYS), PATIENT))
        await until(lambda: len(service.fetches) == 1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        service.wait_before_found.set()
        service.wait_before_found = None
        last = await client.fetch(fetch(KEYS[0]), PATIENT)
        assert last is not None
        client.release(last)
        await until(lambda: not service.slots_out)
        assert link.counters.fetches == {"timeout": 1, "answered": 1}


async def test_one_who_leaves_when_the_answer_is_there_gives_its_slots_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The fault: the answer was taken off the wire, and whoever waited for it is cancelled."""
    async with serving(Service(tmp_path)) as service, connected(service) as (client, _):
        honest(service)
        service.wait_before_found = asyncio.Event()
        leaving = asyncio.create_task(client.fetch(fetch(*KEYS), PATIENT))
        take = client._take

        def take_and_leave(*answer: Any) -> None:
            take(*answer)
            leaving.cancel()

        monkeypatch.setattr(client, "_take", take_and_leave)
        service.wait_before_found.set()
        await asyncio.gather(leaving, return_exceptions=True)
        assert leaving.cancelled()
        await until(lambda: not service.slots_out and len(service.fetches) == 1)


async def test_without_a_service_it_answers_at_once_and_finds_it_when_it_comes(tmp_path: Path):
    service = Service(tmp_path)
    honest(service)
    async with connected(service, wait=False) as (client, link):
        assert await client.fetch(fetch(*KEYS), PATIENT) is None
        assert link.counters.fetches == {"unavailable": 1}
        async with serving(service):
            await until(lambda: client.is_connected)
            assert link.staging is not None
        await until(lambda: not client.is_connected)
        assert link.staging is None
        service.socket_path.unlink(missing_ok=True)
        async with serving(service):
            await until(lambda: client.is_connected)
            fetched = await client.fetch(fetch(*KEYS), PATIENT)
            assert fetched is not None
            client.release(fetched)
            await until(lambda: not service.slots_out)


LIES = [
    "garbage", "endless frame", "unknown call", "too few answers", "no such slot",
    "one slot for all", "die in the middle of a frame", "die at fetch", "refuse to answer",
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
async def test_whoever_waits_gets_nothing_from_a_service_that_lies_or_dies(
    lie: str, tmp_path: Path
):
    async with serving(Service(tmp_path)) as service, connected(service) as (client, link):
        honest(service)
        service.faults.add(lie)
        assert await client.fetch(fetch(*KEYS), PATIENT) is None
        service.faults.clear()
        await until(lambda: client.is_connected)
        fetched = await client.fetch(fetch(*KEYS), PATIENT)
        assert fetched is not None
        client.release(fetched)
        assert link.counters.fetches == {"unavailable": 1, "answered": 1}
        assert (len(service.hellos) == 1) is (lie == "refuse to answer")
        await until(lambda: not service.slots_out)


@pytest.mark.parametrize(
    "fault", ["die at hello", "refuse", "small slots", "no file", "short file"]
)
async def test_a_greeting_that_is_none_is_tried_again(fault: str, tmp_path: Path):
    service = Service(tmp_path)
    service.faults.add(fault)
    async with serving(service), connected(service, wait=False) as (client, link):
        await until(lambda: len(service.hellos) >= 3)
        assert not client.is_connected
        assert link.staging is None
        service.faults.clear()
        await until(lambda: client.is_connected)


def offer(staging: Staging, link: TierLink, *keys: bytes) -> Offer:
    slots: dict[int, bytes] = {}
    for key in keys:
        slot = staging.take()
        assert slot is not None
        staging.record(slot)[:] = record(key, key * 4)
        slots[slot] = key
    return Offer(link.engine_gen, SCOPE_FP, staging, slots)


async def test_what_is_stored_frees_its_slots(tmp_path: Path):
    async with (
        serving(Service(tmp_path, num_write_slots=2)) as service,
        connected(service) as (client, link),
    ):
        slots = link.staging
        assert slots is not None
        client.store([offer(slots, link, *KEYS[:2])])
        assert slots.take() is None
        await until(lambda: slots.num_free == 2)
        assert set(service.records) == set(KEYS[:2])
        assert service.records[KEYS[0]] == record(KEYS[0], KEYS[0] * 4)
        assert [v.outcome for v in link.counters.stored] == [Outcome.USE]


async def test_what_is_not_kept_is_told(tmp_path: Path):
    async with serving(Service(tmp_path)) as service, connected(service) as (client, link):
        service.faults.add("keep nothing")
        assert link.staging is not None
        client.store([offer(link.staging, link, *KEYS[:2])])
        await until(lambda: link.counters.stored.total() == 2)
        assert client._not_kept.__self__ == list(KEYS[:2])


async def test_offers_of_another_connection_or_generation_are_dropped(tmp_path: Path):
    async with serving(Service(tmp_path)) as service, connected(service) as (client, link):
        slots = link.staging
        assert slots is not None
        num_free = slots.num_free
        older = offer(slots, link, KEYS[0])
        link.engine_gen += 1
        client.store([older])
        assert slots.num_free == num_free
        link.engine_gen -= 1
        older = offer(slots, link, KEYS[1])
        await service.stop()
        await until(lambda: not client.is_connected)
        service.socket_path.unlink(missing_ok=True)
        await service.start()
        await until(lambda: client.is_connected)
        client.store([older])
        assert link.staging is not None
        client.store([offer(link.staging, link, KEYS[2])])
        await until(lambda: bool(service.records))
        assert set(service.records) == {KEYS[2]}
        assert {(v.detail, n) for v, n in link.counters.stored.items()} >= {("dropped", 2)}


@pytest.mark.parametrize("fault", ["die at store", "answer for other slots"])
async def test_a_service_that_dies_at_a_store_frees_all_slots_by_its_end(
    fault: str, tmp_path: Path
):
    async with serving(Service(tmp_path)) as service, connected(service) as (client, link):
        service.faults.add(fault)
        before = link.staging
        assert before is not None
        client.store([offer(before, link, *KEYS)])
        await until(lambda: link.staging not in (None, before))
        assert link.staging is not None
        assert link.staging.num_free == 64


async def test_a_generation_that_passed_while_connecting_is_not_served(tmp_path: Path):
    async with serving(Service(tmp_path)) as service:
        link = TierLink()
        client = BlockClient(service.socket_path, "me", link, Backoff(0.005, 0.02))
        client.start(NAMESPACE, print)  # of generation 3; the engine is at 0
        await until(lambda: len(service.hellos) >= 2)
        assert not client.is_connected
        await client.stop()


def test_pauses_double_up_to_a_bound_and_vary():
    backoff = Backoff(1.0, 10.0)
    assert [backoff.seconds(n, luck=1.0) for n in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 10, 10]
    assert [backoff.seconds(n, luck=0.0) for n in (1, 2, 99)] == [0.5, 1, 5]


def test_the_scope_of_a_record_is_the_start_of_the_digest():
    assert NAMESPACE.expected("12" * 32, KEYS[0]).scope == bytes.fromhex("12" * SCOPE_BYTES)
