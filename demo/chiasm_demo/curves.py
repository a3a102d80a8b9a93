"""The run so far as a chart: loss and share of right tokens per kind, for each stage.

Reads the `.jsonl` lines that training writes; draws with Pillow, so nothing else is needed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

STAGES = ("language", "perception", "joint")
_WIDTH, _HEIGHT, _MARGIN, _LEGEND = 640, 260, 40, 170
_PALETTE = (
    (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189),
    (140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207),
    (0, 0, 0), (90, 160, 120),
)  # fmt: skip

Series = dict[str, list[tuple[float, float]]]


def read_curves(path: Path) -> Series:
    """Each metric's points (step, value); a step logged again after a restart counts once."""
    by_step: dict[int, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        by_step[entry["step"]] = entry
    series: Series = {}
    for step, entry in sorted(by_step.items()):
        for name, value in entry.items():
            if name not in ("step", "seconds"):
                series.setdefault(name, []).append((step, value))
    return series


def draw_curves(folder: Path, target: Path) -> Path:
    """One row per stage: losses on the left (logarithmic), shares on the right."""
    stages = [stage for stage in STAGES if (folder / f"{stage}.jsonl").exists()]
    if not stages:
        raise ValueError(f"no curves in {folder}: train first (python -m chiasm_demo train)")
    image = Image.new("RGB", (2 * _WIDTH, _HEIGHT * len(stages)), "white")
    brush = ImageDraw.Draw(image)
    for row, stage in enumerate(stages):
        series = read_curves(folder / f"{stage}.jsonl")
        losses = {name: p for name, p in series.items() if "loss" in name or name == "distance"}
        shares = {name: p for name, p in series.items() if name not in losses}
        _chart(brush, (0, row * _HEIGHT), f"{stage}: loss", losses, (0.02, 100.0, True))
        _chart(brush, (_WIDTH, row * _HEIGHT), f"{stage}: share right", shares, (0.0, 1.0, False))
    image.save(target)
    return target


def _chart(
    brush: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    title: str,
    series: Series,
    scale: tuple[float, float, bool],
) -> None:
    """Axes, one line per metric, legend with the last value."""
    font = ImageFont.load_default(size=12)
    low, high, logarithmic = scale
    left, top = corner[0] + _MARGIN, corner[1] + 24
    right, bottom = corner[0] + _WIDTH - _LEGEND, corner[1] + _HEIGHT - 24
    last_step = max((points[-1][0] for points in series.values()), default=1) or 1

    def place(step: float, value: float) -> tuple[float, float]:
        value = min(max(value, low), high)
        share = (
            math.log(value / low) / math.log(high / low)
            if logarithmic
            else (value - low) / (high - low)
        )
        return left + (right - left) * step / last_step, bottom - (bottom - top) * share

    brush.rectangle((left, top, right, bottom), outline=(180, 180, 180))
    brush.text((left, corner[1] + 6), f"{title}, step {last_step:.0f}", fill=(0, 0, 0), font=font)
    for tick in (0.1, 1.0, 10.0) if logarithmic else (0.25, 0.5, 0.75, 0.95):
        height = place(0, tick)[1]
        brush.line((left, height, right, height), fill=(225, 225, 225))
        brush.text((corner[0] + 4, height - 7), f"{tick:g}", fill=(90, 90, 90), font=font)
    for index, (name, points) in enumerate(sorted(series.items())):
        colour = _PALETTE[index % len(_PALETTE)]
        brush.line([place(*point) for point in points], fill=colour, width=2)
        label = f"{name} {points[-1][1]:.3f}"
        brush.text((right + 8, top + 16 * index), label, fill=colour, font=font)
