"""The picture of a model's decay: what was measured, both curves, the drivers.

Must not know: how anything was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chiasm_worker.decay.fitting import Affine, Curve, Power
from chiasm_worker.decay.record import Decay

_CLAIMED = Power(1.0, 0.07, 0.82)


def check_kind(path: Path) -> None:
    """Raise ValueError for a name whose ending is of no kind of picture."""
    kinds = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.removeprefix(".") not in kinds:
        raise ValueError(
            f"{path} does not say what kind of picture it is; end it in one of: "
            + ", ".join(f".{kind}" for kind in kinds)
            + "."
        )


def draw(decay: Decay, path: Path) -> None:
    """Write the picture; its kind follows from the name's ending."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _curves(left, decay)
    _bars(right, decay)
    figure.suptitle(f"{decay.what} of {decay.model}, {decay.machine}, {decay.date}", fontsize=10)
    figure.savefig(path, dpi=110)


def _curves(axes: Axes, decay: Decay) -> None:
    ratios = np.array([point.ratio for point in decay.points])
    seconds = np.array([point.seconds for point in decay.points])
    axes.plot(
        ratios, seconds * 1000, "o", color="#333333", label=f"measured, least of {decay.repeats}"
    )
    power = Power(decay.power.base, decay.power.a, decay.power.b)
    affine = Affine(decay.affine.base, decay.affine.slope)
    known: Sequence[tuple[Curve, str, str]] = (
        (power, f"power: error {decay.power.error_mean:.1%}", "#d1495b"),
        (affine, f"affine: error {decay.affine.error_mean:.1%}", "#00798c"),
        (Power(decay.power.base, _CLAIMED.a, _CLAIMED.b), "claimed: a 0.07, b 0.82", "#aaaaaa"),
    )
    grid = np.linspace(0, ratios.max(), 200)
    for curve, label, colour in known:
        values = [1000 * curve.at(float(ratio)) for ratio in grid]
        axes.plot(grid, values, color=colour, label=label)
    axes.set_xlabel("visual tokens for each text token")
    axes.set_ylabel("milliseconds")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _bars(axes: Axes, decay: Decay) -> None:
    names = sorted(decay.drivers, key=lambda name: decay.drivers[name])
    rest = 1 - sum(decay.drivers.values())
    values = [rest, *(decay.drivers[name] for name in names)]
    bars = axes.barh(["what remains", *names], [100 * value for value in values], color="#00798c")
    axes.bar_label(bars, fmt="%.0f %%", padding=3, fontsize=8)
    axes.set_xlabel("share of the growth, %")
    axes.set_xlim(min(0, 300 * min(values)), 115 * max(values))
    axes.grid(axis="x", alpha=0.3)
