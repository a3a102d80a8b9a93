"""Bytes add up and stay within their bounds; what is dear or used stays longer."""

from __future__ import annotations

from collections import Counter

import pytest
from chiasm_contract.block_record import Holding, Modality, RecordKind
from chiasm_sidecar.kv.tiers.ledger import KIND_COST, Ledger
from hypothesis import given
from hypothesis import strategies as st

TEXT = Holding(RecordKind.TEXT_KV, Modality.TEXT)
HOLDINGS = st.builds(Holding, st.sampled_from(RecordKind), st.sampled_from(Modality))
NAMES = st.sampled_from(["a", "b", "c"])
KEYS = st.integers(0, 9).map(lambda number: bytes([number]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMES, KEYS, st.integers(0, 60), HOLDINGS),
        st.tuples(st.just("touch"), NAMES, KEYS),
        st.tuples(st.just("remove"), NAMES, KEYS),
        st.tuples(st.just("drain"), st.frozensets(NAMES)),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0.4, 1.0]))
def test_bytes_add_up(steps: list[tuple[object, ...]], share: float) -> None:
    ledger = Ledger(100, share)
    held: dict[tuple[str, bytes], int] = {}
    holdings: dict[tuple[str, bytes], Holding] = {}
    for step in steps:
        match step:
            case ("add", str(name), bytes(key), int(size), Holding() as holding):
                gone = ledger.add(name, key, size, holding)
                if gone is None:
                    assert size > 100 * share
                else:
                    for pair in gone:
                        if pair != (name, key):
                            del held[pair]
                    held[name, key] = size
                    holdings[name, key] = holding
            case ("touch", str(name), bytes(key)):
                ledger.touch(name, [key])
            case ("remove", str(name), bytes(key)):
                ledger.remove(name, key)
                held.pop((name, key), None)
            case ("drain", frozenset() as names):
                ledger.drain(names)
        assert ledger.num_bytes == sum(held.values()) <= 100
        assert len(ledger) == len(held)
        assert all(ledger.has(*pair) for pair in held)
        by_name = ledger.bytes_by_namespace()
        assert sum(by_name.values()) == ledger.num_bytes
        by_holding: Counter[Holding] = Counter()
        for pair, size in held.items():
            by_holding[holdings[pair]] += size
        assert +Counter(ledger.bytes_by_holding()) == +by_holding
        assert all(size <= 100 * share for size in by_name.values())
        assert {k for n in "abc" for k in ledger.keys(n, 99)} == {key for _, key in held}


def test_the_least_recently_used_of_equals_goes() -> None:
    ledger = Ledger(30)
    for number in range(3):
        assert ledger.add("a", bytes([number]), 10, TEXT) == []
    assert ledger.add("a", b"x", 10, TEXT) == [("a", b"\0")]
    ledger.touch("a", [b"\1"])
    assert ledger.add("a", b"y", 10, TEXT) == [("a", b"\2")]


def test_the_first_of_a_chain_goes_after_the_others() -> None:
    ledger = Ledger(30)
    chain = [b"0", b"1", b"2"]
    for key in chain:
        ledger.add("a", key, 10, TEXT)
    ledger.touch("a", chain)
    gone = [ledger.add("b", bytes([number]), 10, TEXT) for number in range(5)]
    order = [pair for pairs in gone if pairs for pair in pairs if pair[0] == "a"]
    assert order == [("a", b"2"), ("a", b"1"), ("a", b"0")][: len(order)]
    assert len(order) >= 2


@pytest.mark.parametrize("kind", [k for k in RecordKind if k is not TEXT.kind])
def test_what_needs_an_encoder_outlives_text(kind: RecordKind) -> None:
    assert KIND_COST[kind] > KIND_COST[TEXT.kind]
    ledger = Ledger(40)
    ledger.add("a", b"dear", 10, Holding(kind, Modality.IMAGE))
    for number in range(6):
        ledger.add("a", bytes([number]), 10, TEXT)
    assert ledger.has("a", b"dear")
    for number in range(50):
        ledger.add("a", bytes([100 + number]), 10, TEXT)
    assert not ledger.has("a", b"dear"), "but not for ever"


def test_what_is_used_often_outlives_what_is_used_once() -> None:
    ledger = Ledger(40)
    ledger.add("a", b"often", 10, TEXT)
    for _ in range(5):
        ledger.touch("a", [b"often"])
    for number in range(8):
        ledger.add("a", bytes([number]), 10, TEXT)
    assert ledger.has("a", b"often")


def test_a_namespace_over_its_share_gives_up_its_own() -> None:
    ledger = Ledger(100, 0.5)
    ledger.add("small", b"1", 10, TEXT)
    for number in range(20):
        ledger.add("greedy", bytes([number]), 10, TEXT)
    assert ledger.bytes_by_namespace() == {"small": 10, "greedy": 50}
    assert ledger.add("a", b"too large", 51, TEXT) is None


def test_what_drains_goes_before_all_others() -> None:
    ledger = Ledger(30)
    ledger.add("old", b"1", 10, Holding(RecordKind.ENCODER_OUTPUT, Modality.IMAGE))
    ledger.touch("old", [b"1"] * 9)
    ledger.add("new", b"1", 10, TEXT)
    ledger.add("new", b"2", 10, TEXT)
    ledger.drain(frozenset({"old", "never met"}))
    assert ledger.add("new", b"3", 10, TEXT) == [("old", b"1")]


def test_heaps_stay_small_however_often_entries_come_and_go() -> None:
    ledger = Ledger(10**9)
    for _ in range(1000):
        ledger.add("a", b"same", 10, TEXT)
        ledger.remove("a", b"same")
    assert len(ledger._queue) < 200
