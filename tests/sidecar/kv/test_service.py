"""A worker's end of the socket against a whole block service with a tier in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chiasm_contract import block_wire as wire
from chiasm_contract.block_guard import UNAVAILABLE, USE, Outcome, Verdict
from chiasm_contract.block_record import Modality, RecordKind

from tests.sidecar.conftest import identity, until
from tests.sidecar.kv.conftest import (
    RECORD_BYTES,
    Service,
    StartService,
    TestWorker,
    hello,
    holds,
    key,
    keys,
    record,
)

ABSENT = Verdict(Outcome.MISS, "absent")
DROPPED = Verdict(Outcome.MISS, "dropped")
BUSY = Verdict(Outcome.MISS, "busy")


async def test_what_is_stored_is_found(service: Service) -> None:
    worker = await service.worker()
    stored = await worker.store(*map(record, range(5)))
    assert [each.verdict for each in stored] == [USE] * 5
    found = await worker.chain(*keys(5))
    assert [each.verdict for each in found] == [USE] * 5
    assert {each.tier for each in found} == {wire.Tier.HOST}
    for number, each in enumerate(found):
        assert worker.get(each.slot) == record(number)


async def test_bytes_are_counted_by_kind_and_modality(service: Service) -> None:
    worker = await service.worker()
    await worker.store(record(0), record(1, RecordKind.MEDIA_KV))
    await worker.store(record(2, RecordKind.MEDIA_KV, modality=Modality.VIDEO))
    for kind, modality in (("text_kv", "text"), ("media_kv", "image"), ("media_kv", "video")):
        labels = {"tier": "host", "kind": kind, "modality": modality}
        assert service.value("chiasm_kv_tier_bytes", **labels) >= RECORD_BYTES
    assert not service.value("chiasm_kv_tier_bytes", **labels | {"modality": "mixed"})


async def test_an_empty_fetch_and_an_empty_store_are_answered(service: Service) -> None:
    worker = await service.worker()
    assert await worker.fetch() == []
    assert await worker.chain() == []
    assert await worker.offer() == []


async def test_a_chain_ends_at_its_first_gap(service: Service) -> None:
    worker = await service.worker()
    await worker.store(record(0), record(1), record(3))
    found = await worker.chain(*keys(5))
    assert [each.verdict for each in found] == [USE, USE, ABSENT, DROPPED, ABSENT]
    assert [each.slot >= 0 for each in found] == [True, True, False, False, False]


async def test_an_entry_comes_whole_or_not_at_all(service: Service) -> None:
    worker = await service.worker()
    await worker.store(*map(record, range(3)))
    entry = wire.GroupKind.ENTRY
    found = await worker.fetch(wire.Group(entry, keys(4)), wire.Group(entry, keys(3)))
    assert [each.verdict for each in found[:4]] == [DROPPED, DROPPED, DROPPED, ABSENT]
    assert [each.verdict for each in found[4:]] == [USE] * 3


async def test_a_group_that_a_long_chain_makes_needless_is_not_fetched(service: Service) -> None:
    worker = await service.worker()
    await worker.store(*map(record, range(6)))
    entry = wire.Group(wire.GroupKind.ENTRY, keys(2, 4), unless_chain=3)
    chain = wire.Group(wire.GroupKind.CHAIN, keys(3))
    assert [f.verdict for f in (await worker.fetch(chain, entry))[3:]] == [DROPPED] * 2
    chain = wire.Group(wire.GroupKind.CHAIN, (*keys(2), key(99)))
    assert [f.verdict for f in (await worker.fetch(chain, entry))[3:]] == [USE] * 2


async def test_what_finds_no_slot_is_busy_until_others_are_released(
    start_service: StartService,
) -> None:
    service = await start_service(staging_bytes=4 * 2**20, host_bytes=16 * 2**20)
    worker = await service.worker(payload_bytes=1000)
    assert worker.welcome is not None
    num_read, num_write = worker.welcome.num_read_slots, worker.welcome.num_write_slots
    for first in range(0, num_read + 10, num_write):
        await worker.store(*map(record, range(first, min(first + num_write, num_read + 10))))
    found = await worker.chain(*keys(num_read + 10))
    assert [each.verdict for each in found] == [USE] * num_read + [BUSY] * 10
    assert sorted(each.slot for each in found[:num_read]) == list(range(num_read))
    entry = wire.Group(wire.GroupKind.ENTRY, keys(1))
    assert [each.verdict for each in await worker.fetch(entry)] == [BUSY]
    worker.release(found)
    rest = await worker.chain(*keys(10, num_read))
    assert [each.verdict for each in rest] == [USE] * 10
    assert all(holds(worker.get(each.slot), num_read + n) for n, each in enumerate(rest))


@pytest.mark.parametrize(
    ("offered", "verdict"),
    [
        (record(0, repr_fp=b"x" * 32), Verdict(Outcome.REJECT, "repr_fp")),
        (record(0, scope=b"x" * 16), Verdict(Outcome.REJECT, "scope")),
        (record(0, payload_bytes=999), Verdict(Outcome.REJECT, "payload_bytes")),
        (record(0, checksum=1), Verdict(Outcome.QUARANTINE, "checksum")),
        (record(0)[:-64] + record(1)[-64:], Verdict(Outcome.QUARANTINE, "torn")),
        (bytes(RECORD_BYTES), Verdict(Outcome.MISS, "header_crc")),
        (b"x" + record(0)[1:], Verdict(Outcome.MISS, "header_crc")),
    ],
)
async def test_what_the_worker_offers_is_judged(
    service: Service, offered: bytes, verdict: Verdict
) -> None:
    worker = await service.worker()
    (stored,) = await worker.store(offered)
    assert stored.verdict == verdict
    assert [each.verdict for each in await worker.chain(key(0))] == [ABSENT]


async def test_the_first_record_under_a_key_stays_and_a_contradiction_removes_both(
    service: Service,
) -> None:
    worker = await service.worker()
    await worker.store(record(0))
    (again,) = await worker.store(record(0, generation=9))
    assert again.verdict == Verdict(Outcome.MISS, "stored")
    (found,) = await worker.chain(key(0))
    assert worker.get(found.slot) == record(0)
    (other,) = await worker.store(record(0, RecordKind.MEDIA_KV))
    assert other.verdict == Verdict(Outcome.QUARANTINE, "conflict")
    assert [each.verdict for each in await worker.chain(key(0))] == [ABSENT]
    assert service.value("chiasm_kv_quarantined_bytes_total") == RECORD_BYTES


async def test_another_scope_finds_nothing(service: Service) -> None:
    worker = await service.worker()
    await worker.store(record(0))
    worker.scope_fp = bytes(32)
    assert [each.verdict for each in await worker.chain(key(0))] == [ABSENT]


async def test_an_older_generation_is_rejected(service: Service) -> None:
    worker = await service.worker(engine_gen=5)
    worker.engine_gen = 6
    await worker.store(record(0))
    worker.engine_gen = 5
    rejected = Verdict(Outcome.REJECT, "generation")
    assert [each.verdict for each in await worker.chain(*keys(2))] == [rejected] * 2
    (stored,) = await worker.store(record(1))
    assert stored.verdict == rejected
    worker.engine_gen = 6
    assert [each.verdict for each in await worker.chain(*keys(2))] == [USE, ABSENT]
    assert service.value("chiasm_kv_version_reject_total", field="generation") == 3
    assert service.value("chiasm_kv_engine_generation") == 6
    again = await service.connect()
    assert "engine_gen is 5, and was 6" in await again.greet(hello(engine_gen=5))


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        (hello(incarnation="another"), "incarnation", "is 'another', expected 'one'"),
        (hello(compute_fp="0" * 64), "identity", "compute_fp is '000"),
        (hello(repr_fp="0" * 64), "identity", "repr_fp is '000"),
        (
            hello(identity(**{"compute.position.theta": 1e6})),
            "identity",
            "compute.position.theta is 1000000.0, expected 10000.0",
        ),
        (hello(fields={}), "identity", "compute.attention_numerics is missing"),
        (hello(payload_bytes=2**31), "staging", "set tiers.staging_bytes to"),
        (b"{}", "version", "another version"),
        (b"\xff", "version", "another version"),
    ],
)
async def test_another_identity_is_refused_by_the_field(
    service: Service, said: wire.Hello | bytes, reason: str, words: str
) -> None:
    worker = await service.connect()
    assert words in await worker.greet(said)
    assert await worker.ended()
    assert service.value("chiasm_kv_connections_refused_total", reason=reason) == 1
    assert service.staging_files() == []


async def test_nobody_is_served_before_admission_and_nothing_while_it_is_withdrawn(
    service: Service,
) -> None:
    service.admitted = None
    early = await service.connect()
    assert "not admitted yet" in await early.greet(hello())
    service.admitted = identity()
    worker = await service.worker()
    await worker.store(record(0))
    service.admitted = None
    assert [each.verdict for each in await worker.chain(key(0))] == [UNAVAILABLE]
    assert [each.verdict for each in await worker.store(record(1))] == [UNAVAILABLE]
    service.admitted = identity()
    assert [each.verdict for each in await worker.chain(*keys(2))] == [USE, ABSENT]


async def test_when_another_worker_is_admitted_the_connection_ends(service: Service) -> None:
    worker = await service.worker()
    service.admitted = identity("two")
    worker.say(wire.Kind.FETCH, wire.encode_fetch(wire.Fetch(1, bytes(32), ())))
    assert await worker.ended()
    assert await (await service.connect()).greet(hello(identity("two"))) == ""


async def test_the_newest_worker_replaces_the_one_before(service: Service) -> None:
    first = await service.worker()
    await first.store(record(0))
    second = await service.worker()
    assert await first.ended()
    (found,) = await second.chain(key(0))
    first.put(found.slot, bytes(RECORD_BYTES))  # a mapping of before is another file
    assert second.get(found.slot) == record(0)


async def test_a_lost_connection_gives_everything_back(service: Service) -> None:
    for _ in range(3):
        worker = await service.worker()
        await worker.store(*map(record, range(4)))
        await worker.chain(*keys(4))
        await worker.close()

        async def gone() -> bool:
            return service.staging_files() == []

        await until(gone)


GARBAGE = [
    os.urandom(64),
    b"",
    (2**31).to_bytes(4, "little") + b"x",
    wire.frame(wire.Kind.FETCH, 1, b""),
    wire.frame(wire.Kind.WELCOME, 1, b""),
]


@pytest.mark.parametrize("data", GARBAGE)
async def test_garbage_instead_of_hello_ends_that_connection_only(
    service: Service, data: bytes
) -> None:
    good = await service.worker()
    bad = await service.connect()
    bad.writer.write(data)
    bad.writer.write_eof()
    assert await bad.ended()
    assert await good.chain() == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (wire.Kind.FETCH, b"x"),
        (wire.Kind.STORE, b""),
        (wire.Kind.RELEASE, wire.encode_slots([0])),
        (wire.Kind.RELEASE, b"xx"),
        (wire.Kind.STORE, wire.encode_store(wire.Store(1, bytes(32), (0,)))),
        (wire.Kind.STORE, wire.encode_store(wire.Store(1, bytes(32), (2**32 - 1,)))),
        (wire.Kind.STORE, wire.encode_store(wire.Store(1, bytes(32), (700, 700)))),
        (wire.Kind.HELLO, b"{}"),
        (wire.Kind.FOUND, b""),
    ],
)
async def test_garbage_after_hello_ends_that_connection_only(
    service: Service, caplog: pytest.LogCaptureFixture, kind: wire.Kind, body: bytes
) -> None:
    worker = await service.worker()
    worker.say(kind, body)
    assert await worker.ended()
    assert "a connection is ended" in caplog.text
    assert "Traceback" not in caplog.text
    assert await (await service.worker()).chain() == []


async def test_a_slot_offered_twice_at_once_ends_the_connection(service: Service) -> None:
    worker = await service.worker()
    assert worker.welcome is not None
    slot = worker.welcome.num_read_slots
    body = wire.encode_store(wire.Store(1, bytes(32), (slot, slot)))
    worker.say(wire.Kind.STORE, body)
    assert await worker.ended()


async def test_the_socket_is_for_the_same_user_only_and_goes_with_the_service(
    tmp_path: Path, start_service: StartService
) -> None:
    (tmp_path / "kv.sock").write_text("left behind")
    (tmp_path / "kv.staging.0123456789abcdef").write_text("left behind")
    service = await start_service()
    assert service.settings.socket_path.stat().st_mode & 0o777 == 0o600
    assert service.staging_files() == []


async def test_a_call_that_takes_long_does_not_hold_others(service: Service) -> None:
    worker: TestWorker = await service.worker()
    await worker.store(record(0))
    fetch = wire.encode_fetch(
        wire.Fetch(1, worker.scope_fp, (wire.Group(wire.GroupKind.CHAIN, keys(1)),))
    )
    for number in range(100):
        worker.say(wire.Kind.FETCH, fetch, number)
    heard = [(await worker.heard())[1] for _ in range(100)]
    assert sorted(heard) == list(range(100))
