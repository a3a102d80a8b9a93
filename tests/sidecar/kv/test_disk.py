"""Records in a folder: bounded, found again, whole or not there, whatever ends a writer."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import xxhash
from chiasm_contract.block_batch import judge_record
from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import HEADER_BYTES, RecordKind
from chiasm_contract.tiers import DiskTier as DiskSettings
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.disk import DiskTier, disk_bytes

from tests.sidecar.kv.conftest import (
    IDENTITY,
    NAMESPACE,
    PAYLOAD_BYTES,
    RECORD_BYTES,
    SCOPE_FP,
    header,
    key,
    keys,
    payload,
    record,
)

STORED = Verdict(Outcome.MISS, "stored")
OpenTier = Callable[..., DiskTier]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tier"


@pytest.fixture
async def make(folder: Path) -> AsyncIterator[OpenTier]:
    async with AsyncExitStack() as stack:

        def new(max_bytes: int = 2**20, share: float = 1.0) -> DiskTier:
            tier = DiskTier(DiskSettings(path=folder, max_bytes=max_bytes), share)
            stack.push_async_callback(tier.close)
            return tier

        yield new


async def put(tier: DiskTier, *numbers: int, kind: RecordKind = RecordKind.TEXT_KV) -> None:
    for number in numbers:
        assert await tier.put(NAMESPACE, header(number, kind), record(number, kind)) == USE


def files(folder: Path) -> set[str]:
    """What is in the namespaces."""
    return {path.name for path in folder.glob("*-*-*/*/*")}


async def test_what_is_put_is_there_also_after_a_restart(make: OpenTier, folder: Path) -> None:
    first = make()
    await first.open()
    await put(first, 0, 1, 2)
    assert await first.get_many(NAMESPACE, keys(4)) == [*map(record, range(3)), None]
    place = folder / NAMESPACE.name / key(0).hex()[:2] / key(0).hex()
    assert place.read_bytes() == record(0)
    manifest = json.loads((folder / NAMESPACE.name / "manifest.json").read_text())
    assert manifest["repr_fp"] == NAMESPACE.shape.repr_fp.hex()
    await first.close()

    second = make()
    assert await second.get_many(NAMESPACE, keys(1)) == [None], "not read yet"
    verdict = await second.put(NAMESPACE, header(5), record(5))
    assert verdict == Verdict(Outcome.MISS, "busy")
    await second.open()
    assert await second.get_many(NAMESPACE, keys(4)) == [*map(record, range(3)), None]
    assert second.bytes_by_namespace() == {NAMESPACE.name: 3 * disk_bytes(RECORD_BYTES)}


async def test_a_folder_has_one_user(make: OpenTier) -> None:
    first, second = make(), make()
    await first.open()
    with pytest.raises(TierFailed, match="BlockingIOError"):
        await second.open()
    await first.close()
    await second.open()


@pytest.fixture
def a_file(folder: Path) -> None:
    folder.write_text("no folder")


@pytest.mark.usefixtures("a_file")
async def test_a_folder_that_cannot_be_made_fails_without_its_path(
    make: OpenTier, folder: Path
) -> None:
    with pytest.raises(TierFailed) as failure:
        await make().open()
    assert str(folder) not in str(failure.value)


async def test_the_first_record_stays_and_a_contradiction_removes_both(make: OpenTier) -> None:
    tier = make()
    await tier.open()
    await put(tier, 0)
    assert await tier.put(NAMESPACE, header(0, generation=9), record(0, generation=9)) == STORED
    assert await tier.get_many(NAMESPACE, keys(1)) == [record(0)]
    other = header(0, RecordKind.MEDIA_KV)
    verdict = await tier.put(NAMESPACE, other, record(0, RecordKind.MEDIA_KV))
    assert verdict == Verdict(Outcome.QUARANTINE, "conflict")
    assert await tier.get_many(NAMESPACE, keys(1)) == [None]
    await put(tier, 0)


async def test_it_stays_within_its_bytes_and_gives_up_text_first(
    make: OpenTier, folder: Path
) -> None:
    tier = make(2**20)
    await tier.open()
    limit = 2**20 // disk_bytes(RECORD_BYTES)
    await put(tier, 1000, kind=RecordKind.ENCODER_OUTPUT)
    await put(tier, *range(limit + 20))
    assert len(files(folder)) == limit
    assert sum(tier.bytes_by_namespace().values()) <= 2**20
    assert key(1000).hex() in files(folder)
    assert key(0).hex() not in files(folder)


async def test_a_smaller_limit_after_a_restart_keeps_the_newest(
    make: OpenTier, folder: Path
) -> None:
    first = make(4 * 2**20)
    await first.open()
    limit = 2**20 // disk_bytes(RECORD_BYTES)
    await put(first, *range(limit + 5))
    for number in range(limit + 5):
        path = folder / NAMESPACE.name / key(number).hex()[:2] / key(number).hex()
        os.utime(path, (number, number))
    await first.close()
    second = make(2**20)
    await second.open()
    assert files(folder) == {key(number).hex() for number in range(5, limit + 5)}


def damaged(folder: Path) -> dict[str, bytes]:
    """Files that a crash or a fault may leave, by what is wrong with them."""
    good = record(7)
    return {
        "empty": b"",
        "cut in the header": good[:50],
        "cut in the payload": good[:500],
        "without its end": good[:-64],
        "longer": good + b"x",
        "of holes": bytes(len(good)),
        "of another key": record(8),
        "of another repr": record(7, repr_fp=b"x" * 32),
        "of another scope": record(7, scope=b"x" * 16),
        "flipped in the header": bytes([good[0] ^ 1]) + good[1:],
    }


@pytest.mark.parametrize("what", damaged(Path()))
async def test_what_is_no_record_is_removed_at_the_start(
    make: OpenTier, folder: Path, what: str
) -> None:
    place = folder / NAMESPACE.name / key(7).hex()[:2] / key(7).hex()
    place.parent.mkdir(parents=True)
    place.write_bytes(damaged(folder)[what])
    (place.parent / ".new-0123456789abcdef").write_bytes(record(7)[:100])
    tier = make()
    await tier.open()
    assert files(folder) == set()
    assert await tier.get_many(NAMESPACE, [key(7)]) == [None]
    await put(tier, 7)


async def test_damage_in_a_payload_is_seen_when_it_is_read(make: OpenTier, folder: Path) -> None:
    first = make()
    await first.open()
    await put(first, 0)
    place = folder / NAMESPACE.name / key(0).hex()[:2] / key(0).hex()
    data = bytearray(record(0))
    data[HEADER_BYTES + 500] ^= 4
    place.write_bytes(data)
    (read,) = await first.get_many(NAMESPACE, keys(1))
    assert read is not None
    checksum = xxhash.xxh3_64_intdigest(read[HEADER_BYTES : HEADER_BYTES + PAYLOAD_BYTES])
    verdict = judge_record(NAMESPACE.shape.of(key(0)), read, checksum)
    assert verdict == Verdict(Outcome.QUARANTINE, "checksum")
    await first.drop(NAMESPACE, key(0))
    assert files(folder) == set()


async def test_a_file_that_somebody_removed_is_absent(make: OpenTier, folder: Path) -> None:
    tier = make()
    await tier.open()
    await put(tier, 0)
    (folder / NAMESPACE.name / key(0).hex()[:2] / key(0).hex()).unlink()
    assert await tier.get_many(NAMESPACE, keys(1)) == [None]
    assert tier.bytes_by_namespace() == {}
    await put(tier, 0)


# A process that puts one record after the other; it imports nothing of the tests, to start fast.
WRITER = """
import asyncio, itertools, resource, sys
from pathlib import Path
from chiasm_contract.block_record import parse_header, record_bytes
from chiasm_contract.tiers import DiskTier as DiskSettings
from chiasm_sidecar.kv.namespaces import Release
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.disk import DiskTier

folder, source, compute_fp, repr_fp, scope_fp, full = sys.argv[1:]
data = Path(source).read_bytes()
size = record_bytes(parse_header(data).payload_bytes)
records = [data[at : at + size] for at in range(0, len(data), size)]
release = Release(compute_fp, repr_fp, parse_header(data).payload_bytes, {})
namespace = release.namespace(bytes.fromhex(scope_fp))

async def write() -> None:
    tier = DiskTier(DiskSettings(path=Path(folder), max_bytes=2**20), 1.0)
    await tier.open()
    print("open", flush=True)
    for number, record in enumerate(itertools.cycle(records)):
        if full and number == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        await tier.put(namespace, parse_header(record), record)

try:
    asyncio.run(write())
except TierFailed as error:
    print(error)
"""


def writer(folder: Path, full: bool = False) -> list[str]:
    """The command that writes 400 records in turn, or the first and then to a full disk."""
    source = folder.with_name("records")
    source.write_bytes(b"".join(map(record, range(400))))
    digests = [IDENTITY.compute_fp, IDENTITY.repr_fp, SCOPE_FP.hex()]
    return [sys.executable, "-c", WRITER, str(folder), str(source), *digests, "full" * full]


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05, 0.2])
async def test_a_killed_writer_leaves_whole_records_only(
    make: OpenTier, folder: Path, wait_seconds: float
) -> None:
    process = await asyncio.create_subprocess_exec(*writer(folder), stdout=subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"open\n"
        await asyncio.sleep(wait_seconds)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    tier = make()
    await tier.open()
    names = files(folder)
    assert not [name for name in names if name.startswith(".")], "leftovers are removed"
    read = await tier.get_many(NAMESPACE, keys(400))
    for number, data in enumerate(read):
        assert data in (None, record(number))
        assert (key(number).hex() in names) is (data is not None)
    assert sum(tier.bytes_by_namespace().values()) == len(names) * disk_bytes(RECORD_BYTES)


async def test_a_write_that_the_disk_refuses_leaves_nothing(make: OpenTier, folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *writer(folder, full=True), stdout=subprocess.PIPE
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert said.decode().splitlines()[1].startswith("disk: OSError, errno")
    assert files(folder) == {key(0).hex()}
    tier = make()
    await tier.open()
    assert await tier.get_many(NAMESPACE, keys(2)) == [record(0), None]


async def test_a_sweep_leaves_the_tombstone_and_no_late_writer_undoes_it(
    make: OpenTier, folder: Path
) -> None:
    tier = make()
    await tier.open()
    await put(tier, *range(30))
    late = asyncio.create_task(tier.put(NAMESPACE, header(100), record(100)))
    await asyncio.sleep(0)
    prefix = NAMESPACE.name.rsplit("-", 1)[0]
    await tier.retire(prefix)
    removed = []
    while count := await tier.sweep(prefix, 7):
        removed.append(count)
    assert max(removed) <= 7
    assert sum(removed) >= 30
    assert (await late) == Verdict(Outcome.MISS, "retired")
    assert files(folder) == set()
    again = make()
    await tier.close()
    await again.open()
    verdict = await again.put(NAMESPACE, header(0), record(0))
    assert verdict == Verdict(Outcome.MISS, "retired")
    assert await again.sweep(prefix, 7) == 0
    assert not (folder / NAMESPACE.name).exists()


async def test_reading_and_writing_at_once_never_gives_a_part(make: OpenTier) -> None:
    tier = make(2**20)
    await tier.open()

    async def write() -> None:
        for number in itertools.islice(itertools.cycle(range(300)), 600):
            await tier.put(NAMESPACE, header(number), record(number))

    async def read() -> None:
        for _ in range(30):
            for number, data in enumerate(await tier.get_many(NAMESPACE, keys(300))):
                assert data in (None, record(number))

    await asyncio.gather(write(), read())
    held = await tier.get_many(NAMESPACE, keys(300))
    taken = sum(tier.bytes_by_namespace().values())
    assert taken == disk_bytes(RECORD_BYTES) * sum(data is not None for data in held)
    assert payload(3) == record(3)[HEADER_BYTES : HEADER_BYTES + PAYLOAD_BYTES]
