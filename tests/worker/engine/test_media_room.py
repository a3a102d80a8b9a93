from __future__ import annotations

from contextlib import ExitStack

import pytest
from chiasm_contract.errors import Overloaded
from chiasm_worker.engine.media_room import MediaRoom

A, B = ("a" * 64, b"a"), ("a" * 64, b"b")


def test_a_shared_picture_counts_once_until_its_last_holder_ends():
    room = MediaRoom(100)
    with room.hold({A: 60}, 1):
        with room.hold({A: 60, B: 30}, 1):
            assert room.num_bytes == 90
        assert room.num_bytes == 60
    assert room.num_bytes == 0


def test_what_does_not_fit_beside_others_is_429_and_takes_nothing():
    room = MediaRoom(100)
    with ExitStack() as stack:
        stack.enter_context(room.hold({A: 60}, 1))
        with pytest.raises(
            Overloaded, match="hold 60 of 100 bytes and this request brings 50"
        ) as e:
            stack.enter_context(room.hold({B: 50}, 7))
        assert e.value.retry_after_seconds == 7
        assert room.num_bytes == 60
        stack.enter_context(room.hold({}, 1))  # without pictures there is nothing to refuse
    assert room.num_bytes == 0


def test_one_request_alone_is_let_in_whatever_it_brings():
    room = MediaRoom(100)
    with room.hold({A: 500}, 1):
        assert room.num_bytes == 500
    assert room.num_bytes == 0


def test_a_request_that_fails_gives_its_room_back():
    room = MediaRoom(100)
    with pytest.raises(RuntimeError), room.hold({A: 50}, 1):
        raise RuntimeError
    assert room.num_bytes == 0
