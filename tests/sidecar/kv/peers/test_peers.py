"""Blocks of another replica, sent by it or read by the real NIXL: right, or not at all."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import signal
from pathlib import Path

import pytest
from chiasm_contract.block_guard import UNAVAILABLE, USE, Outcome, Verdict
from chiasm_contract.block_wire import Tier
from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.nixl import agent
from chiasm_sidecar.kv.store import Reading
from chiasm_sidecar.kv.tiers.arena import Place
from chiasm_sidecar.kv.tiers.base import TierFailed

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import (
    NAMESPACE,
    RECORD_BYTES,
    StartService,
    holds,
    keys,
    record,
    release,
)
from tests.sidecar.kv.peers.conftest import OWN, Asker, StartAsker, StartReplica
from tests.sidecar.kv.peers.replica import settings

ABSENT = Verdict(Outcome.MISS, "absent")


async def read(asker: Asker, count: int, fair_seconds: float = 20) -> Reading:
    store = asker.service.store
    return await store.read(NAMESPACE, keys(count), store.clock() + 20, fair_seconds)


async def places(asker: Asker, count: int) -> list[Place]:
    found = await asker.peer.look_up(wire.Lookup(NAMESPACE.name, RECORD_BYTES, keys(count)))
    assert None not in found
    return [place for place in found if place is not None]


async def test_what_one_replica_stored_the_other_starts_from(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    replica = start_replica()
    replica.say("put", 0, 6)
    asker = await start_asker(replica.address)
    worker = await asker.service.worker()
    found = await worker.chain(*keys(7))
    assert [each.verdict for each in found] == [USE] * 6 + [ABSENT]
    assert [each.tier for each in found[:6]] == [Tier.PEER] * 6
    assert all(holds(worker.get(each.slot), number) for number, each in enumerate(found[:6]))
    worker.release(found)
    assert asker.value("chiasm_kv_peers") == 1
    assert asker.value("chiasm_kv_overtaken_reads_total") == 0

    async def nearer() -> bool:
        again = await worker.chain(*keys(6))
        worker.release(again)
        return [each.tier for each in again] == [Tier.HOST] * 6

    await until(nearer)


async def test_the_records_of_several_replicas_make_one_chain(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    first, second = start_replica("127.0.0.2"), start_replica("127.0.0.3")
    first.say("put", 0, 4)
    second.say("put", 3, 5)
    asker = await start_asker(first.address, second.address)
    reading = await read(asker, 8)
    assert reading.records == [record(number) for number in range(8)]
    first.kill()
    assert (await read(asker, 8)).records[3:] == [record(number) for number in range(3, 8)]


async def test_a_slot_used_again_after_the_look_up_is_nothing(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    replica = start_replica()
    replica.say("put", 0, 3)
    asker = await start_asker(replica.address)
    found = await places(asker, 3)
    replica.say("reuse", 1, 7)
    assert await asker.peer.read(found, RECORD_BYTES) == [record(0), None, record(2)]


async def test_an_overtaken_read_is_counted_and_a_miss(
    start_replica: StartReplica, start_asker: StartAsker, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = start_replica()
    replica.say("put", 0, 2)
    asker = await start_asker(replica.address)
    await read(asker, 1)
    look_up = asker.peer.look_up

    async def then_reuse(lookup: wire.Lookup) -> list[Place | None]:
        found = await look_up(lookup)
        replica.say("reuse", 0, 7)
        return found

    monkeypatch.setattr(asker.peer, "look_up", then_reuse)
    reading = await read(asker, 2)
    assert reading.verdicts == [ABSENT, USE]
    assert asker.value("chiasm_kv_overtaken_reads_total") == 1


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (("spoil", 0, 5), Verdict(Outcome.REJECT, "block_key")),
        (("scope", 0), Verdict(Outcome.REJECT, "scope")),
        (("tear", 0, 99), Verdict(Outcome.QUARANTINE, "torn")),
    ],
)
async def test_a_wrong_record_in_a_replica_s_memory_is_judged_and_not_asked_for_again(
    start_replica: StartReplica,
    start_asker: StartAsker,
    fault: tuple[object, ...],
    verdict: Verdict,
) -> None:
    replica = start_replica()
    replica.say("put", 0, 2)
    replica.say(*fault)
    asker = await start_asker(replica.address)
    reading = await read(asker, 2)
    assert reading.verdicts == [verdict, USE]
    assert reading.records == [None, record(1)]

    async def dropped() -> bool:
        return bool(asker.tier._shunned)

    await until(dropped)
    assert (await read(asker, 2)).verdicts == [ABSENT, USE]
    labels = {"tier": "peer", "op": "get_kv", "outcome": verdict.outcome.name.lower()}
    assert asker.value("chiasm_kv_version_check_total", **labels) == 1


async def test_another_tenant_finds_nothing(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    replica = start_replica()
    replica.say("put", 0, 3)
    asker = await start_asker(replica.address)
    store = asker.service.store
    other = release().namespace(hashlib.sha256(b"other tenant").digest())
    reading = await store.read(other, keys(3), store.clock() + 20, 20)
    assert reading.verdicts == [ABSENT] * 3
    larger = dataclasses.replace(NAMESPACE.shape, payload_bytes=2000)
    resized = dataclasses.replace(NAMESPACE, shape=larger)
    reading = await store.read(resized, keys(3), store.clock() + 20, 20)
    assert reading.verdicts == [ABSENT] * 3


async def test_a_replica_killed_while_it_is_read_from_is_a_failure_that_ends(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    replica = start_replica()
    replica.say("put", 0, 6)
    asker = await start_asker(replica.address)
    found = await places(asker, 6)
    assert None not in await asker.peer.read(found, RECORD_BYTES)
    replica.send(signal.SIGSTOP)
    reading = asyncio.create_task(asker.peer.read(found, RECORD_BYTES))

    async def under_way() -> bool:
        return asker.num_free_berths < 8

    await until(under_way)
    await asyncio.sleep(0.1)
    replica.kill()
    with pytest.raises(TierFailed, match=r"read|Reset"):
        await reading
    assert asker.num_free_berths == 8
    assert (await read(asker, 6)).verdicts == [UNAVAILABLE] * 6


async def test_a_replica_that_started_again_is_read_anew_and_its_old_slots_are_nothing(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    first = start_replica()
    first.say("put", 0, 4)
    asker = await start_asker(first.address)
    old = await places(asker, 4)
    assert (await read(asker, 4)).verdicts == [USE] * 4
    first.kill()
    second = start_replica()
    second.say("put", 0, 3)

    async def met() -> bool:
        return USE in (await read(asker, 4)).verdicts

    await until(met)
    reading = await read(asker, 4)
    assert reading.verdicts == [USE] * 3 + [ABSENT]
    assert await asker.peer.read(old[:3], RECORD_BYTES) == [None] * 3


async def test_a_silent_replica_is_left_alone_and_read_again_when_it_speaks(
    start_replica: StartReplica, start_asker: StartAsker, transport: str
) -> None:
    replica = start_replica()
    replica.say("put", 0, 4)
    asker = await start_asker(replica.address, timeout_seconds=0.5)

    async def met() -> bool:
        return USE in (await read(asker, 4)).verdicts

    await until(met)
    found = await places(asker, 4)
    replica.send(signal.SIGSTOP)
    with pytest.raises(TierFailed):
        await asker.peer.read(found, RECORD_BYTES)
    if transport == "nixl":
        assert asker.num_free_berths == 7  # something may still come in there
        assert not asker.peer.allows(0)
        assert (await read(asker, 4)).verdicts == [ABSENT] * 4
    replica.send(signal.SIGCONT)

    async def ended() -> bool:
        return asker.num_free_berths == 8

    await until(ended)
    replica.send(signal.SIGSTOP)
    for _ in range(3):
        assert (await read(asker, 4)).verdicts == [UNAVAILABLE] * 4
    assert asker.peer.breaker.open
    assert asker.value("chiasm_kv_breaker_open", tier="peer") == 1
    assert asker.value("chiasm_kv_peer_failures_total") >= 3
    replica.send(signal.SIGCONT)
    await until(met)
    assert not asker.peer.breaker.open


async def test_a_request_waits_no_longer_than_its_own_time(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    replica = start_replica()
    replica.say("put", 0, 4)
    asker = await start_asker(replica.address, timeout_seconds=60)
    replica.send(signal.SIGSTOP)
    store = asker.service.store
    reading = await store.read(NAMESPACE, keys(4), store.clock() + 0.2, 0.1)
    assert reading.verdicts == [UNAVAILABLE] * 4


async def test_without_the_secret_nobody_is_served(
    start_replica: StartReplica, start_asker: StartAsker, tmp_path: Path
) -> None:
    replica = start_replica()
    replica.say("put", 0, 1)
    (tmp_path / "secret").write_bytes(b"another secret of 32 bytes or so")
    asker = await start_asker(replica.address)
    with pytest.raises(TierFailed, match="another secret"):
        await places(asker, 1)
    assert (await read(asker, 1)).verdicts == [UNAVAILABLE]

    theirs, stranger = await asyncio.open_connection(OWN, 19200)
    stranger.write(wire.encode_hello(bytes(32)))
    await theirs.readexactly(wire.PROOF_BYTES)
    stranger.write(
        wire.Channel(b"guess" * 8, bytes(32), bytes(32), True).seal(wire.Kind.LOOKUP, b"")
    )
    async with asyncio.timeout(20):
        assert await theirs.read() == b""
    stranger.close()
    await stranger.wait_closed()
    assert asker.value("chiasm_kv_peers_refused_total", reason="denied") == 1


async def test_a_replica_leaves_itself_out(
    start_replica: StartReplica, start_asker: StartAsker
) -> None:
    asker = await start_asker(OWN)
    assert (await read(asker, 1)).verdicts == [ABSENT]
    assert asker.peer.is_self
    assert asker.value("chiasm_kv_peers") == 0


async def test_without_nixl_the_other_tiers_serve_and_a_line_says_what_to_install(
    start_service: StartService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(agent, "_PACKAGE", "nixl_that_is_not_there")
    with caplog.at_level(logging.ERROR):
        service = await start_service(peers=settings(tmp_path, OWN, ("127.0.0.2",), "nixl"))
        worker = await service.worker()
        await worker.store(record(0))
        assert [each.tier for each in await worker.chain(*keys(1))] == [Tier.HOST]

        async def said() -> bool:
            return "a tier cannot be used" in caplog.text

        await until(said)
    (line,) = [each for each in caplog.records if each.message == "a tier cannot be used"]
    said_why = line.__dict__["fields"]["detail"]
    assert "It is in the image chiasm/sidecar-peers" in said_why
    assert "pip install 'chiasm[peers]'" in said_why
    assert service.lacking == (said_why,)
