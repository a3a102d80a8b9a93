"""Wallpapers behind the shelf, as numpy arrays: some to train on, others held out.

A painter gets its size and a random generator and returns [height, width, 3] float32 in 0..255.
Held-out painters share no pattern with the ones trained on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

Painter = Callable[[int, int, np.random.Generator], np.ndarray]


def _colour(rng: np.random.Generator) -> np.ndarray:
    """A muted colour: items and labels must stand out from it."""
    grey = rng.uniform(60, 235)
    return np.clip(grey + rng.uniform(-35, 35, size=3), 0, 255).astype(np.float32)


def _pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two colours that are near each other."""
    first = _colour(rng)
    return first, np.clip(first + rng.uniform(-45, 45, size=3), 0, 255).astype(np.float32)


def _mix(weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Weights [height, width] in 0..1 between two colours."""
    first, second = _pair(rng)
    mixed: np.ndarray = first + (second - first) * weight[..., None].astype(np.float32)
    return mixed


def _axes(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(height)[:, None], np.arange(width)[None, :]


def _plain(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    return np.broadcast_to(_colour(rng), (height, width, 3)).copy()


def _gradient(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    angle = rng.uniform(0, 2 * np.pi)
    ramp = np.cos(angle) * x / width + np.sin(angle) * y / height
    return _mix((ramp - ramp.min()) / np.ptp(ramp), rng)


def _grain(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    rough = rng.normal(0, rng.uniform(4, 14), (height, width, 1)).astype(np.float32)
    return _plain(height, width, rng) + rough


def _stripes(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    period = rng.uniform(12, 60)
    along = x if rng.random() < 0.5 else y
    weight = ((along / period + rng.random()) % 1 < 0.5) * np.ones((height, width))
    return _mix(weight, rng)


def _wood(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    bend = rng.uniform(2, 8) * np.sin(x / rng.uniform(30, 90))
    return _mix(0.5 + 0.5 * np.sin((y + bend) / rng.uniform(2, 8)), rng)


def _squares(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    side = int(rng.integers(10, 48))
    return _mix(((y // side + x // side) % 2).astype(np.float32), rng)


def _spots(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    period = rng.uniform(16, 48)
    inside = np.hypot(y % period - period / 2, x % period - period / 2) < period * 0.25
    return _mix(inside.astype(np.float32), rng)


def _clouds(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Smooth random blotches."""
    coarse = rng.random((int(rng.integers(3, 8)), int(rng.integers(3, 8))), dtype=np.float32)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return _mix(np.clip(np.asarray(image), 0, 1), rng)


def _bricks(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    tall, wide = int(rng.integers(14, 28)), int(rng.integers(30, 60))
    shifted = x + (y // tall % 2) * (wide // 2)
    joint = (y % tall < 2) | (shifted % wide < 2)
    return _mix(joint.astype(np.float32), rng)


def _diagonals(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    period = rng.uniform(14, 50)
    slope = rng.choice((-1, 1))
    return _mix((((x + slope * y) / period) % 1 < 0.5).astype(np.float32), rng)


def _rings(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    distance = np.hypot(y - rng.uniform(0, height), x - rng.uniform(0, width))
    return _mix(0.5 + 0.5 * np.sin(distance / rng.uniform(4, 12)), rng)


def _zigzag(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    y, x = _axes(height, width)
    period = rng.uniform(16, 40)
    fold = np.abs((x / period) % 2 - 1) * period
    return _mix((((y + fold) / period) % 1 < 0.5).astype(np.float32), rng)


TRAIN_PAINTERS: tuple[Painter, ...] = (
    _plain,
    _gradient,
    _grain,
    _stripes,
    _wood,
    _squares,
    _spots,
    _clouds,
)
HELD_OUT_PAINTERS: tuple[Painter, ...] = (_bricks, _diagonals, _rings, _zigzag)
