"""The alphabet between seeing and speaking: fixed vectors for what lies in each slot of a picture.

The vision tower learns to write these vectors, the text decoder learns to read them, and because
both sides know them beforehand they can be trained apart and fit when joined. Nine vision tokens
of each picture carry the nine slots (`slot_tokens`); all others carry the "blank" vector.

Fields of a slot, each a class number with 0 for "none":
    shape | colour | tens | ones | tenths | hundredths      (a digit d is class d + 1)

Knows nothing of models or training. Invariants: the vectors are orthogonal and of equal length,
the same on every machine; two slots never share a token on any grid of at least 4 x 4 tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from chiasm_demo.scene import COLOURS, NUM_SLOTS, SHAPES, Item, Scene

FIELD_CLASSES = {
    "shape": len(SHAPES) + 1,
    "colour": len(COLOURS) + 1,
    "tens": 11,
    "ones": 11,
    "tenths": 11,
    "hundredths": 11,
}
NUM_CODES = sum(FIELD_CLASSES.values()) + NUM_SLOTS + 1
CODE_LENGTH = 0.5
"""Keeps a vision token's embedding about as large as a word's (standard deviation 0.1)."""


def slot_classes(scene: Scene) -> np.ndarray:
    """The truth of a scene: [9, 6] int64, classes in the order of `FIELD_CLASSES`."""
    classes = np.zeros((NUM_SLOTS, len(FIELD_CLASSES)), dtype=np.int64)
    for slot, item in scene.items():
        classes[slot] = item_classes(item)
    return classes


def item_classes(item: Item) -> tuple[int, ...]:
    """The six classes of one item; "2.49" has no tens, "12" has no tenths."""
    whole, _, cents = (item.price or "").partition(".")
    digits = (*whole.rjust(2, " ")[-2:], *cents.ljust(2, " "))
    return (
        SHAPES.index(item.shape) + 1,
        COLOURS.index(item.colour) + 1,
        *(0 if digit == " " else int(digit) + 1 for digit in digits),
    )


def slot_tokens(grid_height: int, grid_width: int) -> np.ndarray:
    """The vision tokens [9] that carry the slots on a grid of so many tokens."""
    rows = ((np.arange(3) + 0.5) / 3 * grid_height).astype(np.int64)
    columns = ((np.arange(3) + 0.5) / 3 * grid_width).astype(np.int64)
    return (rows[:, None] * grid_width + columns[None, :]).reshape(-1)


def code_book(dim: int) -> torch.Tensor:
    """[NUM_CODES, dim] float32: orthogonal rows of length `CODE_LENGTH`.

    Rows: the classes of each field in turn, then the nine slots, then "blank".
    """
    noise = np.random.default_rng(20_26).standard_normal((dim, NUM_CODES))
    basis, upper = np.linalg.qr(noise)
    basis = basis * np.sign(np.diagonal(upper))  # one sign on every machine
    return torch.from_numpy((basis.T * CODE_LENGTH).astype(np.float32))


def embed_slots(classes: torch.Tensor, grid: tuple[int, int], codes: torch.Tensor) -> torch.Tensor:
    """Slot classes [batch, 9, 6] -> what the tower should write: [batch, tokens, dim]."""
    height, width = grid
    field, slot = field_offsets()
    vectors = codes[classes + field].sum(dim=2) + codes[slot : slot + NUM_SLOTS]  # [batch, 9, dim]
    tokens = codes[-1].expand(classes.shape[0], height * width, -1).clone()
    tokens[:, torch.from_numpy(slot_tokens(height, width))] = vectors
    return tokens


def field_offsets() -> tuple[torch.Tensor, int]:
    """Row of each field's first class [6], and the row of the first slot vector."""
    sizes = list(FIELD_CLASSES.values())
    return torch.tensor([sum(sizes[:index]) for index in range(len(sizes))]), sum(sizes)
