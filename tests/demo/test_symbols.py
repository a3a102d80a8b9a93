"""Symbols: the code book is orthogonal, slots and patches land where the picture has them."""

import random

import numpy as np
import pytest
import torch
from chiasm_demo.drawing import Marks
from chiasm_demo.scene import COLOURS, SHAPES, SIDES, Item, sample_scene
from chiasm_demo.shards import patch_classes, shard_scenes, shard_size
from chiasm_demo.symbols import (
    CODE_LENGTH,
    NUM_CODES,
    code_book,
    embed_slots,
    field_offsets,
    item_classes,
    slot_classes,
    slot_tokens,
)


def test_codes_are_orthogonal_and_equally_long() -> None:
    codes = code_book(192)
    wanted = CODE_LENGTH**2 * torch.eye(NUM_CODES)
    torch.testing.assert_close(codes @ codes.T, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("price", "digits"),
    [
        (None, (0, 0, 0, 0)),
        ("3", (0, 4, 0, 0)),
        ("12", (2, 3, 0, 0)),
        ("2.49", (0, 3, 5, 10)),
        ("10.05", (2, 1, 1, 6)),
    ],
)
def test_prices_become_digit_classes(price: str | None, digits: tuple[int, ...]) -> None:
    item = Item("star", "blue", price)
    assert item_classes(item) == (SHAPES.index("star") + 1, COLOURS.index("blue") + 1, *digits)


def test_slots_have_tokens_of_their_own_on_every_grid() -> None:
    for height in range(4, 9):
        for width in range(4, 9):
            tokens = slot_tokens(height, width)
            assert len(set(tokens)) == 9
            assert (tokens // width * 3 // height == np.arange(9) // 3).all()
            assert (tokens % width * 3 // width == np.arange(9) % 3).all()


def test_embedded_slots_can_be_read_back() -> None:
    codes = code_book(192)
    scene = sample_scene(random.Random(3), 196, 224)
    classes = torch.from_numpy(slot_classes(scene))[None]
    tokens = embed_slots(classes, (8, 7), codes)
    scores = tokens[0, torch.from_numpy(slot_tokens(8, 7))] @ codes.T
    offsets = [*field_offsets()[0].tolist(), field_offsets()[1]]
    for field in range(6):
        part = scores[:, offsets[field] : offsets[field + 1]]
        assert torch.equal(part.argmax(dim=1), classes[0, :, field])


def test_patch_classes_follow_the_processors_order() -> None:
    items = np.array([[35.0, 21.0, 9.0, 3, 5]], dtype=np.float32)  # patch row 1, column 2
    digits = np.array(
        [[3.0, 3.0, 7, 2], [11.0, 3.0, 8, 3]], dtype=np.float32
    )  # both halves of patch 0
    classes = patch_classes(Marks(items, digits), (1.0, 1.0), 56, 56)
    assert classes.shape == (16, 6)
    assert classes[0].tolist() == [0, 0, 8, 9, 2, 3]
    assert classes[6].tolist() == [
        3,
        5,
        0,
        0,
        0,
        0,
    ]  # second token (patches 4 to 7), lower left patch
    assert np.count_nonzero(classes[:, 0]) == 1


def test_shard_scenes_are_resized_to_the_shards_size_by_the_processors_rule() -> None:
    for number in range(6):
        width, height = shard_size(number)
        for scene in shard_scenes(number):
            assert round(scene.width / 28) * 28 == width
            assert round(scene.height / 28) * 28 == height
            assert SIDES[0] <= min(scene.width, scene.height)
            assert max(scene.width, scene.height) <= SIDES[-1]
