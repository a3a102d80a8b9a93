"""The eight shapes as outlines: points on and inside the unit circle, y pointing down."""

from __future__ import annotations

import functools
import math

Outline = tuple[tuple[float, float], ...]


def _arc(radius: float, start: float, end: float, centre: tuple[float, float], num: int) -> Outline:
    """Points of a circle's arc; angles in degrees, clockwise from the right."""
    steps = (start + (end - start) * index / (num - 1) for index in range(num))
    return tuple(
        (
            centre[0] + radius * math.cos(math.radians(angle)),
            centre[1] + radius * math.sin(math.radians(angle)),
        )
        for angle in steps
    )


def _star() -> Outline:
    return tuple(
        (
            (1.0 if index % 2 == 0 else 0.42) * math.sin(index * math.pi / 5),
            -(1.0 if index % 2 == 0 else 0.42) * math.cos(index * math.pi / 5),
        )
        for index in range(10)
    )


def _heart() -> Outline:
    points = []
    for index in range(40):
        t = 2 * math.pi * index / 40
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 17, -(y + 2.5) / 17))
    return tuple(points)


def _cross() -> Outline:
    arm = 0.32
    return (
        (-arm, -0.95), (arm, -0.95), (arm, -arm), (0.95, -arm), (0.95, arm), (arm, arm),
        (arm, 0.95), (-arm, 0.95), (-arm, arm), (-0.95, arm), (-0.95, -arm), (-arm, -arm),
    )  # fmt: skip


def _moon() -> Outline:
    """A crescent open to the right: a circle less a circle of 0.8 that is moved by 0.45."""
    reach = (1 + 0.45**2 - 0.8**2) / (2 * 0.45)  # x where the circles meet
    outer = math.degrees(math.acos(reach))
    inner = math.degrees(math.atan2(math.sin(math.radians(outer)), reach - 0.45))
    back = _arc(0.8, 360 - inner, inner, (0.45, 0.0), 24)
    return (*_arc(1.0, outer, 360 - outer, (0.0, 0.0), 36), *back[1:-1])


@functools.cache
def outline(shape: str) -> Outline:
    """The outline of a shape by its name."""
    corner = math.sqrt(0.5)
    outlines: dict[str, Outline] = {
        "circle": _arc(0.92, 0, 350, (0.0, 0.0), 36),
        "square": (
            (-corner * 1.1, -corner * 1.1),
            (corner * 1.1, -corner * 1.1),
            (corner * 1.1, corner * 1.1),
            (-corner * 1.1, corner * 1.1),
        ),
        "triangle": ((0.0, -0.95), (0.95, 0.75), (-0.95, 0.75)),
        "star": _star(),
        "heart": _heart(),
        "diamond": ((0.0, -1.0), (0.78, 0.0), (0.0, 1.0), (-0.78, 0.0)),
        "cross": _cross(),
        "moon": _moon(),
    }
    return outlines[shape]
