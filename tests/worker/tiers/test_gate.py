"""What comes from outside is used after a verdict, and there is no other way."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import chiasm_worker
import pytest
from chiasm_contract.block_guard import USE, Outcome
from chiasm_contract.errors import InvariantError
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.prefix_cache import block_content
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild
from chiasm_worker.tiers.gate import Gate, Judged
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.tiers.records import NAMESPACE, SCOPE_FP, PlainMemory, record

CONTENT = block_content(b"root".ljust(32), range(4), ())
EXPECTED = NAMESPACE.expected(SCOPE_FP, CONTENT.key)
PAYLOAD = bytes(range(128))
REBUILD = Rebuild(BlockKind.TEXT_KV, 4)
SOURCES = Path(next(iter(chiasm_worker.__path__)))


def gate(num_blocks: int = 2) -> tuple[Gate, BlockPool, PlainMemory]:
    pool, memory = BlockPool(num_blocks), PlainMemory(num_blocks)
    pool.allocate(1)
    return Gate(pool, memory), pool, memory


def test_an_honest_record_becomes_findable_with_its_bytes():
    the_gate, pool, memory = gate()
    judged, verdict = the_gate.take_in(0, memoryview(record(CONTENT.key, PAYLOAD)), EXPECTED)
    assert verdict is USE
    assert judged is not None
    assert pool.lookup(CONTENT.key, CONTENT) is None
    the_gate.make_findable(judged, CONTENT, REBUILD)
    assert pool.lookup(CONTENT.key, CONTENT) == 0
    assert memory.blocks[0] == PAYLOAD


LIES = {
    "repr_fp": {"repr_fp": b"x" * 32},
    "scope": {"scope": b"x" * 16},
    "block_key": {"block_key": b"x" * 32},
    "payload_bytes": {"payload_bytes": 64},
}


@pytest.mark.parametrize("field", LIES)
def test_a_record_of_something_else_is_rejected_by_the_name_of_the_field(field: str):
    the_gate, pool, memory = gate()
    lie = record(CONTENT.key, PAYLOAD, **LIES[field])
    judged, verdict = the_gate.take_in(0, memoryview(lie), EXPECTED)
    assert (judged, verdict.outcome, verdict.detail) == (None, Outcome.REJECT, field)
    assert not any(memory.blocks[0])
    pool.check()


def damage(where: slice, data: bytes) -> bytearray:
    damaged = record(CONTENT.key, PAYLOAD)
    damaged[where] = data
    return damaged


DAMAGED = {
    "checksum": damage(slice(128 + 60, 128 + 68), b"12345678"),
    "torn": damage(slice(256, 264), (6).to_bytes(8, "little")),
    "header_crc": damage(slice(20, 21), b"\xff"),
    "trailer": damage(slice(-44, None), b"x" * 44),
}


@pytest.mark.parametrize("reason", DAMAGED)
def test_a_damaged_record_is_not_used(reason: str):
    the_gate, _, _ = gate()
    judged, verdict = the_gate.take_in(0, memoryview(DAMAGED[reason]), EXPECTED)
    assert (judged, verdict.detail) == (None, reason)


@given(st.integers(0, 319), st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed(place: int, change: int):
    the_gate, _, _ = gate()
    damaged = record(CONTENT.key, PAYLOAD)
    damaged[place] ^= change
    judged, _ = the_gate.take_in(0, memoryview(damaged), EXPECTED)
    assert judged is None


@given(st.binary(min_size=320, max_size=320))
def test_any_bytes_are_judged_and_raise_nothing(data: bytes):
    the_gate, _, _ = gate()
    judged, _ = the_gate.take_in(0, memoryview(bytearray(data)), EXPECTED)
    assert judged is None


def test_what_is_rewritten_while_it_is_copied_is_torn():
    """The owner of the slot writes another record between our two looks at it."""
    slot = memoryview(record(CONTENT.key, PAYLOAD))
    pool = BlockPool(1)
    pool.allocate(1)

    class Rewritten(PlainMemory):
        def write_payload(self, block_id: int, data: memoryview) -> memoryview:
            arrived = super().write_payload(block_id, data)
            slot[:] = record(CONTENT.key, b"other".ljust(128), generation=6)
            return arrived

    judged, verdict = Gate(pool, Rewritten(1)).take_in(0, slot, EXPECTED)
    assert (judged, verdict.detail) == (None, "torn")


def test_only_the_gate_makes_what_can_be_made_findable():
    with pytest.raises(TypeError, match="a record is used after a verdict"):
        Judged(object(), 0, 0, CONTENT.key)


def test_a_verdict_is_for_one_content_in_one_generation():
    the_gate, pool, _ = gate()
    judged, _ = the_gate.take_in(0, memoryview(record(CONTENT.key, PAYLOAD)), EXPECTED)
    assert judged is not None
    other = replace(CONTENT, key=b"o" * 32)
    with pytest.raises(InvariantError, match="was judged in generation 0"):
        the_gate.make_findable(judged, other, REBUILD)
    pool.release([0])
    pool.allocate(2)
    with pytest.raises(InvariantError, match="in 1; bug"):
        the_gate.make_findable(judged, CONTENT, REBUILD)


def uses(attribute: str) -> set[str]:
    """The modules of the worker that call or name an attribute."""
    return {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == attribute
    }


def names(name: str) -> set[str]:
    """The modules of the worker that name something."""
    return {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id == name
    }


def test_there_is_no_other_way_into_the_pool():
    """Bytes from outside enter by `write_payload`; content becomes findable by `commit`."""
    assert uses("write_payload") == {"tiers/gate.py"}
    own = {"sched/scheduler.py", "kvcache/media_cache.py"}  # what this engine computes itself
    assert uses("commit") == {"tiers/gate.py"} | own
    assert names("_SEAL") == {"tiers/gate.py"}
    # Read slots are looked at where they are judged, and nowhere else.
    assert uses("record") == {"tiers/restore.py", "tiers/offering.py"}
    # Nobody else writes into the pool's index or hands out what came into it.
    assert uses("_by_key") == {"kvcache/block_pool.py"}
    assert uses("_payload") == {"engine/arena.py"}
