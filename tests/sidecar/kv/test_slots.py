"""A slot has one holder at a time, whatever is asked in whichever order."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_sidecar.kv.slots import Slots
from chiasm_sidecar.kv.staging import Staging, remove_leftovers
from hypothesis import given
from hypothesis import strategies as st

NUM_READ, NUM_WRITE = 5, 3
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "release", "offer", "give_back"]),
        st.lists(st.integers(-1, NUM_READ + NUM_WRITE + 1), max_size=4),
    ),
    max_size=40,
)


@given(STEPS)
def test_every_slot_has_one_holder(steps: list[tuple[str, list[int]]]) -> None:
    slots = Slots(NUM_READ, NUM_WRITE)
    taken: set[int] = set()
    offered: set[int] = set()
    for what, chosen in steps:
        known = set(chosen)
        once = len(known) == len(chosen)
        match what:
            case "take":
                got = slots.take(len(chosen))
                assert len(got) == min(len(chosen), NUM_READ - len(taken))
                assert not taken & set(got)
                taken |= set(got)
            case "release" if once and known <= taken:
                slots.release(chosen)
                taken -= known
            case "offer" if once and not known & offered and known <= set(range(NUM_READ, 8)):
                slots.offer(chosen)
                offered |= known
            case "give_back" if known <= offered:
                slots.give_back(chosen)
                offered -= known
            case _:
                with pytest.raises(ValueError, match=r"[Ss]lot"):
                    getattr(slots, what)(chosen)
        assert slots.num_taken == len(taken)
        assert slots.num_free + slots.num_taken == NUM_READ
    slots.release(sorted(taken))
    assert sorted(slots.take(NUM_READ + 1)) == list(range(NUM_READ))


def test_both_sides_see_what_is_written(tmp_path: Path) -> None:
    base = tmp_path / "staging"
    with Staging(base, 1024, 256) as staging:
        assert (staging.slots.num_read, staging.slots.num_write) == (3, 1)
        staging.write(1, b"one")
        with staging.path.open("r+b") as other:
            assert other.read()[256:259] == b"one"
            other.seek(768)
            other.write(b"x" * 256)
        assert staging.read(3) == b"x" * 256
        assert staging.path.stat().st_blocks * 512 >= 1024, "claimed, not only promised"
    assert not staging.path.exists()


@pytest.mark.parametrize(("slot_bytes", "counts"), [(512, (1, 1)), (300, (2, 1)), (64, (12, 4))])
def test_both_kinds_of_slots_are_there(
    tmp_path: Path, slot_bytes: int, counts: tuple[int, int]
) -> None:
    with Staging(tmp_path / "staging", 1024, slot_bytes) as staging:
        assert (staging.slots.num_read, staging.slots.num_write) == counts


def test_a_file_too_small_for_two_slots_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a block of this model takes 513.*to 1026 or more"):
        Staging(tmp_path / "staging", 1024, 513)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_claimed_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"File too large|No space"):
        Staging(tmp_path / "staging", 2**62, 2**60)
    assert list(tmp_path.iterdir()) == []


def test_only_leftovers_are_removed(tmp_path: Path) -> None:
    for name in ("staging", "staging.0123", "other.0123"):
        (tmp_path / name).write_text("x")
    remove_leftovers(tmp_path / "staging")
    assert {path.name for path in tmp_path.iterdir()} == {"staging", "other.0123"}
