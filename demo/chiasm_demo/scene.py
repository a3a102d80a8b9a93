"""What a shelf picture shows, as plain data: the truth that drawing paints and questions ask about.

A shelf has 1 to 3 rows and columns of cells. A cell is empty or holds one item (a shape in a
colour), which may carry a price. Every cell lies in one *slot* of a fixed 3 x 3 raster of the
picture (thirds of its height and width), and slots have names: "top left", "middle", ...

Knows nothing of pixels, fonts, words of questions or models.
Invariants: two cells never share a slot; a scene holds at least one item; the same seed gives the
same scene.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "black", "white")
SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "moon")
ROW_NAMES = ("top", "middle", "bottom")
COLUMN_NAMES = ("left", "middle", "right")
NUM_SLOTS = 9

SIDES = (112, 140, 168, 196, 224)
"""Picture sides in pixels that need no resizing: multiples of the model's 28-pixel vision token."""

_THREE_CELLS_FROM_PIXELS = 168
"""A cell must stay at least 56 pixels wide, or its price would not be legible."""

_THIRDS_OF = {1: (1,), 2: (0, 2), 3: (0, 1, 2)}


class Split(Enum):
    """Disjoint ranges of picture seeds: a picture of one split can never appear in another."""

    TRAIN = 0
    HELD_OUT = 2_000_000_000
    SAMPLES = 3_000_000_000

    def seed(self, index: int) -> int:
        """The seed of picture `index` of this split."""
        if not 0 <= index < 1_000_000_000:
            raise ValueError(f"picture index {index} is outside 0..999999999")
        return self.value + index


@dataclass(frozen=True)
class Item:
    """One thing on the shelf."""

    shape: str
    colour: str
    price: str | None = None

    @property
    def name(self) -> str:
        """How questions and answers call it, for example "red circle"."""
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """A shelf: `cells[row][column]` is an item or None; sides in pixels."""

    width: int
    height: int
    cells: tuple[tuple[Item | None, ...], ...]

    @property
    def num_rows(self) -> int:
        """Rows of the shelf, 1 to 3."""
        return len(self.cells)

    @property
    def num_columns(self) -> int:
        """Columns of the shelf, 1 to 3."""
        return len(self.cells[0])

    def slots(self) -> list[Item | None]:
        """The nine slots in reading order; a slot without a cell is None like an empty cell."""
        found: list[Item | None] = [None] * NUM_SLOTS
        for row, items in enumerate(self.cells):
            for column, item in enumerate(items):
                found[slot_of(row, column, self.num_rows, self.num_columns)] = item
        return found

    def items(self) -> list[tuple[int, Item]]:
        """(slot, item) of everything on the shelf, in reading order."""
        return [(slot, item) for slot, item in enumerate(self.slots()) if item is not None]


def slot_of(row: int, column: int, num_rows: int, num_columns: int) -> int:
    """The slot 0..8 in which the cell lies: a single row or column is the middle one."""
    return 3 * _THIRDS_OF[num_rows][row] + _THIRDS_OF[num_columns][column]


def slot_name(slot: int) -> str:
    """ "top left", "top middle", ..., "middle", ..., "bottom right"."""
    row, column = ROW_NAMES[slot // 3], COLUMN_NAMES[slot % 3]
    return row if row == column else f"{row} {column}"


def sample_price(rng: random.Random) -> str:
    """A price as labels print it: 3, 12, 2.49 or 14.99; no form is rare, no digit is favoured."""
    form = rng.choice(("d", "dd", "d.dd", "d.dd", "dd.dd", "dd.dd"))
    digits = [str(rng.randint(0, 9)) for _ in range(4)]
    leading = str(rng.randint(1, 9))
    if form == "d":
        return leading
    if form == "dd":
        return leading + digits[0]
    if form == "d.dd":
        return f"{digits[1]}.{digits[2]}{digits[3]}"
    return f"{leading}{digits[0]}.{digits[2]}{digits[3]}"


def sample_item(rng: random.Random, priced_share: float = 2 / 3) -> Item:
    """One random item; `priced_share` of all carry a price."""
    price = sample_price(rng) if rng.random() < priced_share else None
    return Item(rng.choice(SHAPES), rng.choice(COLOURS), price)


def sample_scene(
    rng: random.Random, width: int | None = None, height: int | None = None, *, full: bool = False
) -> Scene:
    """One random shelf; sides that are not given are drawn from `SIDES`.

    A `full` shelf has hardly an empty cell and a price on nearly everything: more to read.
    """
    width = rng.choice(SIDES) if width is None else width
    height = rng.choice(SIDES) if height is None else height
    num_rows = _sample_count(rng, height)
    num_columns = _sample_count(rng, width)
    occupied = rng.uniform(0.9, 1.0) if full else rng.uniform(0.5, 1.0)
    priced_share = 0.95 if full else 2 / 3
    cells: list[list[Item | None]] = [
        [
            sample_item(rng, priced_share) if rng.random() < occupied else None
            for _ in range(num_columns)
        ]
        for _ in range(num_rows)
    ]
    if all(item is None for row in cells for item in row):
        cells[rng.randrange(num_rows)][rng.randrange(num_columns)] = sample_item(rng, priced_share)
    return Scene(width, height, tuple(tuple(row) for row in cells))


def _sample_count(rng: random.Random, side_pixels: int) -> int:
    """How many cells lie along a side, as far as prices stay legible."""
    if side_pixels < _THREE_CELLS_FROM_PIXELS:
        return rng.choice((1, 2, 2))
    return rng.choice((1, 2, 2, 3, 3, 3))
