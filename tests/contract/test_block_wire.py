"""Frames survive the socket, and any other bytes are a ValueError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from chiasm_contract import block_wire as wire
from chiasm_contract.block_guard import Outcome, Verdict
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.lists(st.binary(min_size=32, max_size=32), max_size=6).map(tuple)
GROUPS = st.builds(
    wire.Group,
    kind=st.sampled_from(wire.GroupKind),
    keys=KEYS,
    unless_chain=st.integers(0, 2**32 - 1),
)
GENERATIONS = st.integers(0, 2**64 - 1)
SCOPES = st.binary(min_size=32, max_size=32)
SLOTS = st.lists(st.integers(0, 2**32 - 1), max_size=8).map(tuple)
VERDICTS = st.builds(
    Verdict, outcome=st.sampled_from(Outcome), detail=st.sampled_from(wire.DETAILS)
)
TRACES = st.just(b"") | st.binary(min_size=24, max_size=24)
DECODERS: list[Callable[[bytes], object]] = [
    wire.decode_fetch,
    wire.decode_found,
    wire.decode_store,
    wire.decode_stored,
    wire.decode_slots,
    wire.split_frame,
    wire.frame_length,
    wire.Hello.model_validate_json,
    wire.Welcome.model_validate_json,
]


@given(st.builds(wire.Fetch, GENERATIONS, SCOPES, st.lists(GROUPS, max_size=4).map(tuple), TRACES))
def test_fetches_survive(fetch: wire.Fetch) -> None:
    assert wire.decode_fetch(wire.encode_fetch(fetch)) == fetch


@given(
    st.lists(
        st.builds(wire.Found, VERDICTS, st.sampled_from(wire.Tier), st.integers(-1, 2**31 - 1)),
        max_size=6,
    )
)
def test_found_survives(found: list[wire.Found]) -> None:
    assert wire.decode_found(wire.encode_found(found)) == found


@given(st.builds(wire.Store, GENERATIONS, SCOPES, SLOTS))
def test_stores_survive(store: wire.Store) -> None:
    assert wire.decode_store(wire.encode_store(store)) == store


@given(st.lists(st.builds(wire.Stored, st.integers(0, 2**32 - 1), VERDICTS), max_size=6))
def test_stored_survives(stored: list[wire.Stored]) -> None:
    assert wire.decode_stored(wire.encode_stored(stored)) == stored


@given(SLOTS)
def test_slots_survive(slots: tuple[int, ...]) -> None:
    assert wire.decode_slots(wire.encode_slots(slots)) == slots


@given(st.sampled_from(wire.Kind), st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_frames_survive(kind: wire.Kind, call: int, body: bytes) -> None:
    data = wire.frame(kind, call, body)
    assert wire.frame_length(data[:4]) == len(data) - 4
    assert wire.split_frame(data[4:]) == (kind, call, body)


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200))
def test_any_bytes_decode_or_are_a_value_error(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with contextlib.suppress(ValueError):
        decode(data)


@given(
    st.builds(wire.Fetch, GENERATIONS, SCOPES, st.lists(GROUPS, max_size=3).map(tuple), TRACES),
    st.data(),
)
def test_a_cut_or_longer_fetch_is_refused(fetch: wire.Fetch, data: st.DataObject) -> None:
    body = wire.encode_fetch(fetch)
    length = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ValueError, match=r"early|allowed"):
        wire.decode_fetch(body[:length])
    with pytest.raises(ValueError, match="too many"):
        wire.decode_fetch(body + b"x")


def test_counts_beyond_the_limits_are_refused_before_anything_is_read() -> None:
    groups = wire.encode_fetch(wire.Fetch(0, bytes(32), ()))[:-8]
    with pytest.raises(ValueError, match="groups"):
        wire.decode_fetch(groups + (wire.MAX_GROUPS + 1).to_bytes(4, "little") + bytes(4))
    keys = groups + (1).to_bytes(4, "little") + bytes(4) + bytes(5)
    with pytest.raises(ValueError, match="keys"):
        wire.decode_fetch(keys + (wire.MAX_KEYS + 1).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="trace of 25 bytes"):
        wire.decode_fetch(groups + bytes(4) + (25).to_bytes(4, "little"))
    for length in (4, wire.MAX_FRAME_BYTES + 1):
        with pytest.raises(ValueError, match="allowed"):
            wire.frame_length(length.to_bytes(4, "little"))
    whole = wire.Fetch(0, bytes(32), (wire.Group(wire.GroupKind.CHAIN, (bytes(32),) * 65_536),))
    assert len(wire.frame(wire.Kind.FETCH, 0, wire.encode_fetch(whole))) < wire.MAX_FRAME_BYTES


def test_an_unknown_word_of_a_later_version_is_kept_apart() -> None:
    body = (1).to_bytes(4, "little") + bytes([Outcome.MISS, 200, 0, 0]) + bytes(4)
    (found,) = wire.decode_found(body)
    assert found.verdict == Verdict(Outcome.MISS, "unknown")
