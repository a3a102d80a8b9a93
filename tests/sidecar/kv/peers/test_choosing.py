"""Which of many replicas are asked: few, the same for all who ask, and in turn each of them."""

from __future__ import annotations

import hashlib
from collections import Counter

from chiasm_sidecar.kv.peers.choosing import MAX_ASKED, asked_for, share
from hypothesis import given, settings
from hypothesis import strategies as st

NAMESPACES = st.text("0123456789abcdef-", min_size=1, max_size=50)
KEYS = st.binary(min_size=32, max_size=32)
ADDRESSES = st.lists(st.ip_addresses().map(str), unique=True, max_size=80)


def key(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8)).digest()


@given(ADDRESSES, NAMESPACES, KEYS)
def test_as_many_as_allowed_are_asked_each_once(
    addresses: list[str], namespace: str, first: bytes
) -> None:
    asked = asked_for(addresses, namespace, first)
    assert len(asked) == len(set(asked)) == min(len(addresses), MAX_ASKED)
    assert set(asked) <= set(addresses)


@given(ADDRESSES, NAMESPACES, KEYS, st.data())
def test_all_who_seek_the_same_ask_the_same(
    addresses: list[str], namespace: str, first: bytes, data: st.DataObject
) -> None:
    otherwise = data.draw(st.permutations(addresses))
    assert set(asked_for(addresses, namespace, first)) == set(
        asked_for(otherwise, namespace, first)
    )


@given(ADDRESSES.filter(bool), NAMESPACES, KEYS, st.data())
def test_one_that_goes_moves_nothing_but_its_own_share(
    addresses: list[str], namespace: str, first: bytes, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(addresses))
    left = [each for each in addresses if each != gone]
    before = set(asked_for(addresses, namespace, first))
    after = set(asked_for(left, namespace, first))
    assert before - {gone} <= after
    assert len(after - before) == (gone in before and len(left) >= MAX_ASKED)


@settings(max_examples=20)  # each digests some ten thousand times
@given(st.integers(MAX_ASKED + 1, 128), NAMESPACES)
def test_over_many_things_each_replica_is_asked_as_often_as_the_others(
    count: int, namespace: str
) -> None:
    addresses = [f"10.0.0.{number}" for number in range(count)]
    num_calls = 60 * count // MAX_ASKED
    asked = Counter(
        address
        for number in range(num_calls)
        for address in asked_for(addresses, namespace, key(number))
    )
    fair = num_calls * MAX_ASKED / count  # 60, with a deviation of less than 8
    assert set(asked) == set(addresses)
    assert fair / 3 < min(asked.values()) <= max(asked.values()) < fair * 2


@given(st.lists(st.sets(st.integers(0, 40)), max_size=20))
def test_each_record_is_read_once_from_one_that_has_it_if_any_has(having: list[set[int]]) -> None:
    chosen = share(having, 41)
    assert all(set(ours) <= held for ours, held in zip(chosen, having, strict=True))
    read = [at for ours in chosen for at in ours]
    assert sorted(read) == sorted(set().union(*having))


@given(st.integers(1, 20), st.integers(0, 100))
def test_what_all_have_is_read_in_equal_parts(num_replicas: int, count: int) -> None:
    sizes = [len(ours) for ours in share([set(range(count))] * num_replicas, count)]
    assert max(sizes) - min(sizes) <= 1
