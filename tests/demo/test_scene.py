"""Scenes: the same seed gives the same scene, splits never meet, slots never clash."""

import random
from itertools import pairwise, product

import pytest
from chiasm_demo.scene import (
    NUM_SLOTS,
    Split,
    sample_price,
    sample_scene,
    slot_name,
    slot_of,
)
from hypothesis import given
from hypothesis import strategies as st


@given(seed=st.integers(0, 2**32))
def test_a_seed_gives_one_scene(seed: int) -> None:
    scene = sample_scene(random.Random(seed))
    assert scene == sample_scene(random.Random(seed))
    assert scene.items()


def test_splits_are_disjoint_seed_ranges() -> None:
    ends = sorted((split.seed(0), split.seed(999_999_999)) for split in Split)
    assert all(last < first for (_, last), (first, _) in pairwise(ends))
    with pytest.raises(ValueError, match="outside"):
        Split.TRAIN.seed(1_000_000_000)


def test_two_cells_never_share_a_slot() -> None:
    for num_rows, num_columns in product((1, 2, 3), repeat=2):
        cells = list(product(range(num_rows), range(num_columns)))
        slots = {slot_of(row, column, num_rows, num_columns) for row, column in cells}
        assert len(slots) == len(cells)


def test_a_cell_lies_in_the_third_its_slot_names() -> None:
    for num_rows, row in ((n, r) for n in (1, 2, 3) for r in range(n)):
        third = int((row + 0.5) / num_rows * 3)
        assert slot_of(row, 0, num_rows, 1) // 3 == third


def test_slot_names_are_distinct_and_in_reading_order() -> None:
    names = [slot_name(slot) for slot in range(NUM_SLOTS)]
    assert names[0] == "top left"
    assert names[4] == "middle"
    assert names[8] == "bottom right"
    assert len(set(names)) == NUM_SLOTS


def test_prices_have_one_of_four_forms_and_use_every_digit() -> None:
    rng = random.Random(0)
    prices = [sample_price(rng) for _ in range(2000)]
    forms = {"".join("d" if c.isdigit() else c for c in price) for price in prices}
    assert forms == {"d", "dd", "d.dd", "dd.dd"}
    assert set("".join(prices)) == set("0123456789.")


def test_small_pictures_have_few_cells() -> None:
    for seed in range(200):
        scene = sample_scene(random.Random(seed), 112, 140)
        assert scene.num_columns <= 2
        assert scene.num_rows <= 2
