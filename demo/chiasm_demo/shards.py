"""Drawn pictures on disk, a training batch per file: drawing costs as much as a training step.

    shard-00017.npz   pictures [64, H, W, 3] uint8 · slots [64, 9, 6] int8 · patches [64, P, 6] int8

All pictures of a shard have one size, so that the vision tower sees a plain batch. Questions are
not stored: a shard's scenes follow from its number, and new questions are asked each time.
`patches` says, for each 14-pixel patch in the processor's order, what lies there: shape and colour
of the item over its centre, the digits centred in its left and right half (0 for none), and those
digits' places (1 to 4: tens, ones, tenths, hundredths).

Invariant: a shard follows from its number alone. A file appears only when it is complete.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from chiasm_demo.drawing import Marks, Style, draw
from chiasm_demo.model_config import MERGE, PATCH_PIXELS, TOKEN_PIXELS
from chiasm_demo.scene import SIDES, Scene, Split, sample_scene
from chiasm_demo.symbols import slot_classes

SHARD_SIZE = 64
NUM_PLACES = 4


@dataclass(frozen=True)
class Shard:
    """One batch of drawn pictures and what is on them."""

    scenes: list[Scene]
    pictures: np.ndarray
    slots: np.ndarray
    patches: np.ndarray

    def half(self, which: int) -> Shard:
        """The first (0) or second (1) half: smaller batches learn more per picture early on."""
        part = slice(which * SHARD_SIZE // 2, (which + 1) * SHARD_SIZE // 2)
        return Shard(self.scenes[part], self.pictures[part], self.slots[part], self.patches[part])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of vision tokens."""
        return self.pictures.shape[1] // TOKEN_PIXELS, self.pictures.shape[2] // TOKEN_PIXELS


def shard_path(folder: Path, number: int) -> Path:
    """Where a shard lies."""
    return folder / f"shard-{number:05d}.npz"


def shard_size(number: int) -> tuple[int, int]:
    """Width and height of the shard's pictures after the processor's resizing."""
    rng = random.Random(f"shard {number}")
    return rng.choice(SIDES), rng.choice(SIDES)


def shard_scenes(number: int) -> list[Scene]:
    """The scenes of a shard; half of them are drawn a little larger or smaller and then resized.

    Every second shard has full shelves, since digits are what takes longest to learn.
    """
    width, height = shard_size(number)
    scenes = []
    for index in range(number * SHARD_SIZE, (number + 1) * SHARD_SIZE):
        rng = random.Random(Split.TRAIN.seed(index))
        exact = rng.random() < 0.5
        drawn = [side if exact else _near(side, rng) for side in (width, height)]
        scenes.append(sample_scene(rng, *drawn, full=number % 2 == 1))
    return scenes


def _near(side: int, rng: random.Random) -> int:
    """A side that the processor resizes to `side`."""
    reach = TOKEN_PIXELS // 2 - 1
    return rng.randint(max(SIDES[0], side - reach), min(SIDES[-1], side + reach))


def draw_shard(number: int, style: Style, folder: Path) -> None:
    """Draw and store one shard, unless it is there already."""
    path = shard_path(folder, number)
    if path.exists():
        return
    width, height = shard_size(number)
    pictures, patches = [], []
    scenes = shard_scenes(number)
    for offset, scene in enumerate(scenes):
        seed = Split.TRAIN.seed(number * SHARD_SIZE + offset)
        picture, marks = draw(scene, seed, style)
        scale = (width / scene.width, height / scene.height)
        resized = picture.resize((width, height), Image.Resampling.BICUBIC)
        pictures.append(np.asarray(resized))
        patches.append(patch_classes(marks, scale, width, height))
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    with unfinished.open("wb") as file:
        np.savez(
            file,
            pictures=np.stack(pictures),
            slots=np.stack([slot_classes(scene) for scene in scenes]).astype(np.int8),
            patches=np.stack(patches),
        )
    unfinished.rename(path)


def load_shard(number: int, folder: Path) -> Shard:
    """Read a shard that has been drawn."""
    with np.load(shard_path(folder, number), allow_pickle=False) as stored:
        return Shard(shard_scenes(number), stored["pictures"], stored["slots"], stored["patches"])


def patch_classes(marks: Marks, scale: tuple[float, float], width: int, height: int) -> np.ndarray:
    """What lies in each patch: [P, 6] int8, fields as in the module's description."""
    rows, columns = height // PATCH_PIXELS, width // PATCH_PIXELS
    classes = np.zeros((rows, columns, 6), dtype=np.int8)
    y = (np.arange(rows)[:, None] + 0.5) * PATCH_PIXELS
    x = (np.arange(columns)[None, :] + 0.5) * PATCH_PIXELS
    for item_x, item_y, radius, shape, colour in marks.items:
        reach = max(0.8 * radius, 0.75 * PATCH_PIXELS)
        away = np.hypot(x / scale[0] - item_x, y / scale[1] - item_y)
        classes[away < reach, :2] = (shape, colour)
    for digit_x, digit_y, digit, place in marks.digits:
        half = int(digit_x * scale[0] / (PATCH_PIXELS / 2))
        row, column = int(digit_y * scale[1] / PATCH_PIXELS), half // 2
        if 0 <= row < rows and 0 <= column < columns:
            classes[row, column, 2 + half % 2] = digit + 1
            classes[row, column, 4 + half % 2] = place
    merged = classes.reshape(rows // MERGE, MERGE, columns // MERGE, MERGE, 6)
    return merged.transpose(0, 2, 1, 3, 4).reshape(-1, 6)
