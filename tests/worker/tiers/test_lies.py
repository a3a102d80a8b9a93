"""Whatever the block service sends, and whenever it dies: the answers are those without tiers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from chiasm_contract.block_record import HEADER_BYTES, TRAILER_BYTES, parse_header
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.tiers.wanted import Patience

from tests.worker.server.running_worker import until
from tests.worker.tiers import records
from tests.worker.tiers.block_service import Service, serving
from tests.worker.tiers.conftest import num_stale, rig

Lie = Callable[[Service, bytes, bytes], bytes]


def payload(record: bytes) -> bytes:
    return record[HEADER_BYTES:-TRAILER_BYTES]


def rewritten(record: bytes, **changes: object) -> bytes:
    """A record that is whole, with another header."""
    header = parse_header(record)
    given = {name: getattr(header, name) for name in header.__dataclass_fields__}
    return bytes(records.record(header.block_key, payload(record), **{**given, **changes}))


def other(service: Service, key: bytes) -> bytes:
    """Another block's record of equal size."""
    return next(record for each, record in service.records.items() if each != key)


LIES: dict[str, Lie] = {
    "another block": lambda service, key, record: other(service, key),
    "other readers": lambda service, key, record: rewritten(record, scope=b"o" * 16),
    "another layout of equal size": lambda s, k, record: rewritten(record, repr_fp=b"r" * 32),
    "another key": lambda service, key, record: rewritten(record, block_key=b"k" * 32),
    "other weights, their own key": lambda service, key, record: rewritten(
        record, block_key=bytes(255 - byte for byte in key)
    ),
    "torn": lambda service, key, record: (
        record[: len(record) // 2] + other(service, key)[len(record) // 2 :]
    ),
    "torn in the payload": lambda service, key, record: (
        record[:HEADER_BYTES]
        + payload(other(service, key))[:64]
        + record[HEADER_BYTES + 64 :]
    ),
    "truncated": lambda service, key, record: record[: len(record) // 2].ljust(len(record), b"\0"),
    "one bit": lambda s, k, record: record[:300] + bytes([record[300] ^ 1]) + record[301:],
    "nothing but zeros": lambda service, key, record: bytes(len(record)),
    "poison in place of the payload": lambda service, key, record: (
        record[:HEADER_BYTES] + b"\x7f" * len(payload(record)) + record[-TRAILER_BYTES:]
    ),
}  # fmt: skip
TALK = ask("What stands left of the tin, and what behind it? Answer in one word or two.")


@pytest.fixture
def talk(picture: Callable[..., bytes]):
    return ask("What stands left of the tin, and what behind it? Say it in a word.", [picture(1)])


async def filled(model: Prepared, service: Service, talk) -> dict[bytes, bytes]:
    async with rig(model, service.socket_path) as first:
        await first.ask(talk)
        await first.stored(service, first.counters.offered_blocks.total())
    return dict(service.records)


@pytest.mark.parametrize("share", ["all", "some"])
@pytest.mark.parametrize("lie", LIES)
async def test_a_record_that_is_not_what_it_should_be_is_computed_anew(
    lie: str, share: str, qwen: Prepared, talk, tmp_path: Path
):
    [want] = qwen.generate(qwen.engine(), [talk], 8)
    async with serving(Service(tmp_path, 256, 256)) as service:
        honest = await filled(qwen, service, talk)
        lied: set[bytes] = set()

        def corrupt(key: bytes, record: bytes) -> bytes:
            if share == "some" and key[0] % 2:
                return record
            lied.add(key)
            return LIES[lie](service, key, record)

        service.corrupt = corrupt
        async with rig(qwen, service.socket_path) as worker:
            assert await worker.ask(talk) == want
            assert num_stale(worker.engine, honest) == 0
            assert await worker.ask(talk) == want
            refused = sum(n for v, n in worker.counters.taken.items() if v.outcome)
            assert lied
            assert refused >= 1
            if share == "all":
                assert worker.counters.restored_tokens.total() == 0
            await until(lambda: not service.slots_out)


FAULTS = [
    "garbage", "endless frame", "unknown call", "too few answers", "no such slot",
    "one slot for all", "die in the middle of a frame", "die at fetch", "refuse to answer",
    "die at hello", "refuse", "die at store", "answer for other slots", "keep nothing",
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_service_that_fails_costs_nothing_but_time(
    fault: str, qwen: Prepared, talk, tmp_path: Path
):
    [want] = qwen.generate(qwen.engine(), [talk], 8)
    async with serving(Service(tmp_path, 256, 256)) as service:
        honest = await filled(qwen, service, talk)
        service.faults.add(fault)
        async with rig(qwen, service.socket_path, wait=False) as worker:
            assert await worker.ask(talk) == want
            assert await worker.ask(ask("And now?")) is not None
            assert num_stale(worker.engine, honest) == 0
            service.faults.clear()
            await until(lambda: worker.client.is_connected)
            worker.engine.pool.uncommit(list(worker.engine.pool._by_key.values()))
            assert await worker.ask(talk) == want
            assert worker.counters.restored_tokens.total() > 0, "back again, it is used again"
        if fault == "one slot for all":
            service.complaints.clear()  # about the slot that it had not handed out


async def test_a_service_that_says_nothing_is_waited_for_only_so_long(
    qwen: Prepared, talk, tmp_path: Path
):
    [want] = qwen.generate(qwen.engine(), [talk], 8)
    async with serving(Service(tmp_path, 256, 256)) as service:
        await filled(qwen, service, talk)
        service.wait_before_found = asyncio.Event()
        async with rig(qwen, service.socket_path, patience=Patience(0.01, 0.01)) as worker:
            assert await worker.ask(talk) == want
            assert worker.counters.fetches == {"timeout": 1}
            service.wait_before_found.set()
            await until(lambda: not service.slots_out and len(service.fetches) >= 2)


@pytest.mark.parametrize("moment", range(6))
async def test_it_may_die_at_any_moment(moment: int, qwen: Prepared, talk, tmp_path: Path):
    """Killed and started again while requests come and go; each answer is as without it."""
    talks = [talk, ask("And what is this?"), ask("How are you at this hour of the day?")]
    want = [qwen.generate(qwen.engine(), [each], 6)[0] for each in talks]
    async with serving(Service(tmp_path, 64, 64)) as service:
        await filled(qwen, service, talk)
        async with rig(
            qwen, service.socket_path, kv_cache_bytes=2**20, max_model_len=256
        ) as worker:
            asking = [asyncio.create_task(worker.ask(each, 6)) for each in talks * 3]
            for _ in range(3):
                for _ in range(7 * moment):
                    await asyncio.sleep(0)
                await service.stop()
                service.socket_path.unlink(missing_ok=True)
                await service.start()
                await asyncio.sleep(0.01 * moment)
            assert await asyncio.gather(*asking) == want * 3
            worker.engine.scheduler.check()
            service.complaints.clear()  # of connections that were cut in the middle
