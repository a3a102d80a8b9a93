"""Slots that others read: none handed out twice, a generation for each content, bounds kept."""

from __future__ import annotations

import struct

from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import RecordKind
from chiasm_sidecar.kv.tiers.arena import Arena, ArenaTier, Region, record_in, slot_bytes
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.kv.conftest import NAMESPACE, RECORD_BYTES, header, key, keys, record

SLOT = slot_bytes(RECORD_BYTES)
NUM_SLOTS = 5


def words(arena: Arena, offset: int) -> tuple[int, int]:
    view = arena.region.view
    (lead,) = struct.unpack_from("<Q", view, offset)
    (tail,) = struct.unpack_from("<Q", view, offset + arena.slot_bytes - 64)
    return lead, tail


@given(st.lists(st.integers(0, NUM_SLOTS - 1)))
def test_free_and_filled_slots_are_all_slots(steps: list[int]) -> None:
    arena = Arena(Region(NUM_SLOTS * SLOT + 100))
    arena.divide(RECORD_BYTES)
    filled = {}
    seen = set()
    for step in steps:
        if step in filled:
            arena.empty(filled.pop(step).offset)
        elif len(filled) < NUM_SLOTS:
            filled[step] = arena.fill(record(step))
            assert filled[step].generation not in seen
            seen.add(filled[step].generation)
        offsets = {place.offset for place in filled.values()}
        assert len(offsets) == len(filled)
        assert len(arena._free) + len(filled) == NUM_SLOTS
        assert all(words(arena, offset) == (0, 0) for offset in arena._free)
        for number, place in filled.items():
            slot = arena.region.view[place.offset : place.offset + SLOT]
            assert record_in(slot, place.generation) == record(number)
            assert record_in(slot, place.generation + 1) is None


async def put(tier: ArenaTier, number: int) -> Verdict:
    return await tier.put(NAMESPACE, header(number), record(number))


async def test_the_memory_is_bounded_and_what_goes_cannot_be_found() -> None:
    tier = ArenaTier(Region(NUM_SLOTS * SLOT), 1.0)
    for number in range(3 * NUM_SLOTS):
        assert await put(tier, number) == USE
    held = await tier.get_many(NAMESPACE, keys(3 * NUM_SLOTS))
    assert [each is not None for each in held].count(True) == NUM_SLOTS
    places = tier.find(NAMESPACE.name, RECORD_BYTES, keys(3 * NUM_SLOTS))
    assert [place is None for place in places] == [each is None for each in held]
    assert tier.bytes_by_namespace() == {NAMESPACE.name: NUM_SLOTS * SLOT}


async def test_the_first_record_stays_and_a_contradiction_takes_both_out() -> None:
    tier = ArenaTier(Region(NUM_SLOTS * SLOT), 1.0)
    await put(tier, 0)
    assert await put(tier, 0) == Verdict(Outcome.MISS, "stored")
    other = header(0, RecordKind.MEDIA_KV)
    verdict = await tier.put(NAMESPACE, other, record(0, RecordKind.MEDIA_KV))
    assert verdict == Verdict(Outcome.QUARANTINE, "conflict")
    assert await tier.get_many(NAMESPACE, [key(0)]) == [None]


async def test_a_stored_record_that_somebody_overwrote_gives_way() -> None:
    tier = ArenaTier(Region(NUM_SLOTS * SLOT), 1.0)
    await put(tier, 0)
    (place,) = tier.find(NAMESPACE.name, RECORD_BYTES, [key(0)])
    assert place is not None
    tier.arena.region.view[place.offset + 64 : place.offset + 192] = bytes(128)
    assert await put(tier, 0) == USE
    assert await tier.get_many(NAMESPACE, [key(0)]) == [record(0)]


async def test_records_of_another_size_take_the_others_out() -> None:
    tier = ArenaTier(Region(NUM_SLOTS * SLOT), 1.0)
    await put(tier, 0)
    longer = record(1) + bytes(64)
    assert await tier.put(NAMESPACE, header(1), longer) == USE
    assert await tier.get_many(NAMESPACE, keys(2)) == [None, longer]
    assert tier.find(NAMESPACE.name, RECORD_BYTES, keys(2)) == [None, None]


async def test_others_find_neither_another_size_nor_what_is_retired() -> None:
    tier = ArenaTier(Region(NUM_SLOTS * SLOT), 1.0)
    await put(tier, 0)
    assert tier.find(NAMESPACE.name, RECORD_BYTES + 64, [key(0)]) == [None]
    assert tier.find("another-name", RECORD_BYTES, [key(0)]) == [None]
    await tier.retire(NAMESPACE.name[:16])
    assert tier.find(NAMESPACE.name, RECORD_BYTES, [key(0)]) == [None]
    assert await tier.sweep(NAMESPACE.name[:16], 100) == 1
    assert await tier.sweep(NAMESPACE.name[:16], 100) == 0
