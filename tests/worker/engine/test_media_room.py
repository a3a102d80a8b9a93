from __future__ import annotations

from contextlib import ExitStack

import pytest
from chiasm_contract.errors import Overloaded
from chiasm_worker.engine.media_room import MediaRoom


def test_a_shared_picture_counts_once_until_its_last_holder_ends():
    room = MediaRoom(100)
    with room.hold({b"a": 60}, 1):
        with room.hold({b"a": 60, b"b": 30}, 1):
            assert room.num_bytes == 90
        assert room.num_bytes == 60
    assert room.num_bytes == 0


def test_what_does_not_fit_beside_others_is_429_and_takes_nothing():
    room = MediaRoom(100)
    with ExitStack() as stack:
        stack.enter_context(room.hold({b"a": 60}, 1))
        with pytest.raises(
            Overloaded, match="hold 60 of 100 bytes and this request brings 50"
        ) as e:
            stack.enter_context(room.hold({b"b": 50}, 7))
        assert e.value.retry_after_seconds == 7
        assert room.num_bytes == 60
        stack.enter_context(room.hold({}, 1))  # without pictures there is nothing to refuse
    assert room.num_bytes == 0


def test_one_request_alone_is_let_in_whatever_it_brings():
    room = MediaRoom(100)
    with room.hold({b"a": 500}, 1):
        assert room.num_bytes == 500
    assert room.num_bytes == 0


@pytest.mark.parametrize("held", [100, 101, 500])
def test_who_brings_nothing_new_is_let_in_however_much_is_held(held: int):
    """The fault: words, or the very picture that is here, refused beside one large request."""
    room = MediaRoom(100)
    with ExitStack() as stack:
        for sizes in ({b"a": held}, {}, {b"a": held}):
            stack.enter_context(room.hold(sizes, 1))
        with pytest.raises(Overloaded, match="this request brings 1 more"):
            stack.enter_context(room.hold({b"a": held, b"b": 1}, 1))
        assert room.num_bytes == held
    assert room.num_bytes == 0


def test_a_request_that_fails_gives_its_room_back():
    room = MediaRoom(100)
    with pytest.raises(RuntimeError), room.hold({b"a": 50}, 1):
        raise RuntimeError
    assert room.num_bytes == 0
