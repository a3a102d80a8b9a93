"""Paints a scene: wallpaper, shelf boards, items, price labels; then tilts it a few degrees.

Drawn at twice the size and reduced, so edges and letters are smooth. Returns the picture and where
everything ended up (`Marks`), which is what the vision tower is first taught to find.

Knows nothing of questions, tokens or models. Invariants: the same scene, seed and style give the
same pixels; an item's centre is in its slot or within 8 % of it; a label's digits are at least 7
pixels apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from chiasm_demo.backgrounds import HELD_OUT_PAINTERS, TRAIN_PAINTERS, Painter
from chiasm_demo.distortions import distort
from chiasm_demo.fonts import HELD_OUT_PACKAGES, TRAIN_PACKAGES, font_files, load_font
from chiasm_demo.outlines import outline
from chiasm_demo.scene import COLOURS, SHAPES, Item, Scene, Split

_SCALE = 2
_MAX_TILT_DEGREES = 4.0

_RGB = {
    "red": (214, 32, 36),
    "orange": (245, 134, 22),
    "yellow": (246, 214, 30),
    "green": (36, 150, 60),
    "blue": (34, 84, 206),
    "purple": (132, 48, 160),
    "black": (24, 24, 26),
    "white": (244, 244, 242),
}


@dataclass(frozen=True)
class Style:
    """What may be drawn with: font files by package, and wallpapers."""

    fonts: dict[str, tuple[Path, ...]]
    painters: tuple[Painter, ...]


@dataclass(frozen=True)
class Marks:
    """Where things are, in pixels of the finished picture."""

    items: np.ndarray  # [num_items, 5]: x, y, radius, shape class, colour class (from 1)
    digits: np.ndarray  # [num_digits, 4]: x, y, digit, place (1 to 4: tens ... hundredths)


@dataclass
class _Canvas:
    """The picture while it is painted, at `_SCALE` times its size, and its marks so far."""

    image: Image.Image
    brush: ImageDraw.ImageDraw
    items: list[tuple[float, float, float, int, int]]
    digits: list[tuple[float, float, int, int]]


def load_style(split: Split) -> Style:
    """The fonts and wallpapers of a split; samples are drawn with the held-out ones."""
    if split is Split.TRAIN:
        return Style(font_files(TRAIN_PACKAGES), TRAIN_PAINTERS)
    return Style(font_files(HELD_OUT_PACKAGES), HELD_OUT_PAINTERS)


def draw(scene: Scene, seed: int, style: Style) -> tuple[Image.Image, Marks]:
    """The scene as a picture of its size, distorted as `distort` says."""
    rng = np.random.default_rng(seed)
    width, height = scene.width * _SCALE, scene.height * _SCALE
    painter = style.painters[rng.integers(len(style.painters))]
    wall = painter(height, width, rng)
    image = Image.fromarray(np.clip(wall, 0, 255).astype(np.uint8))
    canvas = _Canvas(image, ImageDraw.Draw(image), [], [])
    _draw_shelf(canvas, scene, rng, style)
    picture, marks = _tilt(canvas, scene, rng)
    return distort(picture, rng), marks


def _draw_shelf(canvas: _Canvas, scene: Scene, rng: np.random.Generator, style: Style) -> None:
    """Boards under each row (or none), then every item in its cell."""
    boards = rng.random() < 0.75
    board = tuple(int(v) for v in rng.integers(50, 220, size=3))
    label_style = _LabelStyle.sample(rng, style)
    for row, cells in enumerate(scene.cells):
        bottom = scene.height * _SCALE * (row + 1) / scene.num_rows
        thick = rng.uniform(4, 9) if boards else 0.0
        if boards:
            canvas.brush.rectangle((0, bottom - thick, canvas.image.width, bottom), fill=board)
        for column, item in enumerate(cells):
            if item is not None:
                box = _cell_box(scene, row, column)
                _draw_item(canvas, item, box, rng, label_style)


def _cell_box(scene: Scene, row: int, column: int) -> tuple[float, float, float, float]:
    """left, top, width, height of a cell, in canvas pixels."""
    wide = scene.width * _SCALE / scene.num_columns
    tall = scene.height * _SCALE / scene.num_rows
    return column * wide, row * tall, wide, tall


@dataclass(frozen=True)
class _LabelStyle:
    """One shelf's labels look alike: typeface, letter height, colours."""

    font: Path
    height: float
    paper: tuple[int, int, int]
    ink: tuple[int, int, int]
    framed: bool

    @classmethod
    def sample(cls, rng: np.random.Generator, style: Style) -> _LabelStyle:
        """A random typeface of a random package, 13 to 21 pixels tall, dark on light or reverse."""
        files = style.fonts[sorted(style.fonts)[rng.integers(len(style.fonts))]]
        light = tuple(int(v) for v in rng.integers(205, 256, size=3))
        dark = tuple(int(v) for v in rng.integers(0, 70, size=3))
        paper, ink = (dark, light) if rng.random() < 0.2 else (light, dark)
        return cls(
            font=files[rng.integers(len(files))],
            height=float(rng.uniform(13, 21)) * _SCALE,
            paper=(paper[0], paper[1], paper[2]),
            ink=(ink[0], ink[1], ink[2]),
            framed=bool(rng.random() < 0.4),
        )


def _draw_item(
    canvas: _Canvas,
    item: Item,
    box: tuple[float, float, float, float],
    rng: np.random.Generator,
    label: _LabelStyle,
) -> None:
    """The shape, and below it its label if it has a price; both jittered within the cell."""
    left, top, wide, tall = box
    label_tall = min(label.height * 1.15, 0.42 * tall) if item.price else 0.0
    room_tall = tall - label_tall - 10
    radius = min(wide, room_tall) * rng.uniform(0.33, 0.46)
    radius = min(radius, 40.0 * _SCALE)
    centre_x = left + wide / 2 + rng.uniform(-1, 1) * min(0.1 * wide, wide / 2 - radius)
    slack = max(room_tall / 2 - radius, 0.0)
    centre_y = top + 2 + room_tall / 2 + rng.uniform(-1, 1) * min(slack, 0.03 * tall)
    tint = rng.uniform(-14, 14, size=3)
    fill = tuple(int(np.clip(v + t, 0, 255)) for v, t in zip(_RGB[item.colour], tint, strict=True))
    edge = (235, 235, 235) if item.colour == "black" else tuple(int(v * 0.45) for v in fill)
    turn = math.radians(rng.uniform(-8, 8))
    points = [
        (
            centre_x + radius * (x * math.cos(turn) - y * math.sin(turn)),
            centre_y + radius * (x * math.sin(turn) + y * math.cos(turn)),
        )
        for x, y in outline(item.shape)
    ]
    canvas.brush.polygon(points, fill=fill)
    canvas.brush.line([*points, points[0]], fill=edge, width=3, joint="curve")
    canvas.items.append(
        (centre_x, centre_y, radius, SHAPES.index(item.shape) + 1, COLOURS.index(item.colour) + 1)
    )
    if item.price:
        middle = (
            left + wide / 2 + rng.uniform(-0.04, 0.04) * wide,
            top + tall - label_tall / 2 - 6,
        )
        _draw_label(canvas, item.price, middle, wide - 6, label)


def _draw_label(
    canvas: _Canvas,
    price: str,
    middle: tuple[float, float],
    room: float,
    style: _LabelStyle,
) -> None:
    """Paper, then the price's characters one by one, so that each digit's centre is known."""
    size = round(style.height)
    font = load_font(style.font, size)
    while font.getlength(price) > room - 8 and size > 11 * _SCALE:
        size -= 1
        font = load_font(style.font, size)
    widths = [font.getlength(character) for character in price]
    spread = max(1.0, 7.2 * _SCALE / max(font.getlength("0"), 1.0))
    widths = [width * spread for width in widths]
    ascent, descent = font.getbbox("0")[1], font.getbbox("0")[3]
    total, tall = sum(widths), descent - ascent
    left, top = middle[0] - total / 2, middle[1] - tall / 2
    paper = (left - 5, top - 5, left + total + 5, top + tall + 5)
    canvas.brush.rectangle(paper, fill=style.paper, outline=style.ink if style.framed else None)
    places = _places(price)
    for character, width, place in zip(price, widths, places, strict=True):
        offset = (width - font.getlength(character)) / 2
        canvas.brush.text((left + offset, top - ascent), character, font=font, fill=style.ink)
        if character != ".":
            canvas.digits.append((left + width / 2, middle[1], int(character), place))
        left += width


def _places(price: str) -> list[int]:
    """The place of each character: 1 tens, 2 ones, 3 tenths, 4 hundredths, 0 the point."""
    num_whole = len(price.partition(".")[0])
    whole = list(range(3 - num_whole, 3))
    return whole if num_whole == len(price) else [*whole, 0, 3, 4]


def _tilt(canvas: _Canvas, scene: Scene, rng: np.random.Generator) -> tuple[Image.Image, Marks]:
    """Turn about the centre by a few degrees, reduce to the scene's size, move the marks along."""
    angle = rng.uniform(-_MAX_TILT_DEGREES, _MAX_TILT_DEGREES) if rng.random() < 0.6 else 0.0
    image = canvas.image
    if angle:
        border = tuple(int(v) for v in np.asarray(image)[::8, ::8].mean(axis=(0, 1)))
        image = image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=border)
    picture = image.reduce(_SCALE)
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))

    def moved(x: float, y: float) -> tuple[float, float]:
        x, y = x / _SCALE - scene.width / 2, y / _SCALE - scene.height / 2
        return x * cos + y * sin + scene.width / 2, -x * sin + y * cos + scene.height / 2

    items = [(*moved(x, y), r / _SCALE, s, c) for x, y, r, s, c in canvas.items]
    digits = [(*moved(x, y), digit, place) for x, y, digit, place in canvas.digits]
    return picture, Marks(
        np.array(items, dtype=np.float32).reshape(-1, 5),
        np.array(digits, dtype=np.float32).reshape(-1, 4),
    )
