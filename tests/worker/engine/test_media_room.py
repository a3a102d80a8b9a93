from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack

import pytest
from chiasm_contract.errors import Overloaded
from chiasm_worker.engine.media_room import MediaRoom
from chiasm_worker.engine.service import EngineService
from chiasm_worker.equality import Prepared, ask
from hypothesis import given
from hypothesis import strategies as st

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
    with pytest.raises(RuntimeError), room.hold({A: 50}, 1):
        raise RuntimeError
    assert room.num_bytes == 0


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abc"), st.integers(0, 60)), st.booleans()),
        max_size=12,
    )
)
def test_room_that_was_taken_is_given_back(steps: list[tuple[Mapping[str, int], bool]]):
    """The fault: what is taken and what is given back are not the same number."""
    room = MediaRoom(100)
    inside: list[AbstractContextManager[None]] = []
    for sizes, is_leaving in steps:
        if is_leaving and inside:
            inside.pop(0).__exit__(None, None, None)
            continue
        entered = room.hold(sizes, 1)
        try:
            entered.__enter__()
        except Overloaded:
            continue
        inside.append(entered)
        assert room.num_bytes >= 0
    for each in inside:
        each.__exit__(None, None, None)
    assert room.num_bytes == 0
    assert not room._holders
    assert not room._sizes_bytes


async def test_one_picture_in_two_forms_takes_and_gives_back_the_room_of_both(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """Alone a picture is cut into tiles, beside another it is not: one digest, two sizes."""
    model, png = prepared("onevision-qwen2"), picture(1, 90, 70)
    service = EngineService(model.engine())
    _, alone = model.prompt(ask("?", [png]))
    _, beside = model.prompt(ask("?", [png, png]))
    sizes = {each: each.num_bytes for each in (*alone, *beside)}
    assert len(set(sizes.values())) == 2
    room = service._media_room
    for first, second in ((alone, beside), (beside, alone)):
        with ExitStack() as late:
            with service.media(first):
                late.enter_context(service.media(second))
                assert room.num_bytes == sum(sizes.values())
            assert room.num_bytes == sizes[second[0]]
        assert room.num_bytes == 0
