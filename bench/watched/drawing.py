"""A dashboard as a picture of its data, for the docs: panels in rows of three, as Grafana has them.

Must not know: where Prometheus is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from chiasm_dashboards.board import Board, Panel, Query
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from watched.prometheus import Series

_COLUMNS = 3
_MOST_LINES = 8
# What Grafana makes of its words for units.
_UNITS = {
    "Bps": "bytes/s",
    "percent": "%",
    "percentunit": "",
    "reqps": "requests/s",
    "s": "seconds",
    "short": "",
}
_TICKS = {
    "Bps": EngFormatter(),
    "bytes": EngFormatter(),
    "percentunit": PercentFormatter(1.0),
}
Ask = Callable[[Query], list[Series]]


def draw(board: Board, ask: Ask, path: Path) -> None:
    """Draw each panel of a board into one picture."""
    panels = list(board.panels())
    rows = -(-len(panels) // _COLUMNS)
    figure = Figure(figsize=(15, 2.9 * rows), layout="constrained")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False)
    figure.suptitle(board.title, fontsize=14)
    for index, place in enumerate(axes.flat):
        if index < len(panels):
            _draw_panel(place, panels[index], ask)
        else:
            place.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": None})


def _draw_panel(place: Axes, panel: Panel, ask: Ask) -> None:
    place.set_title(panel.title, fontsize=10)
    place.set_ylabel(_UNITS.get(panel.unit, panel.unit), fontsize=8)
    if panel.unit in _TICKS:
        place.yaxis.set_major_formatter(_TICKS[panel.unit])
    place.tick_params(labelsize=8)
    place.grid(visible=True, alpha=0.3)
    lines = [(legend(query, series), series) for query in panel.queries for series in ask(query)]
    # Lines that are 0 all the time say the least; there are many of them.
    lines.sort(key=lambda each: -max(value for _, value in each[1].points))
    shown = lines[:_MOST_LINES]
    low, high = _range(lines)
    if panel.kind == "stacked" and high > 0:
        _stack(place, shown)
    else:
        for name, series in shown:
            # Not clipped: a line at 0 lies on the frame, and looked like a panel without data.
            place.plot(*_seconds(series, lines), label=name, linewidth=1.2, clip_on=False, zorder=3)
    if shown:
        place.legend(fontsize=7, loc="best", framealpha=0.6)
    else:
        place.text(0.5, 0.5, "no data", ha="center", transform=place.transAxes)
    if low == high == 0:
        place.set_ylim(0, 1)
    elif low >= 0:
        place.set_ylim(bottom=0, top=None if panel.kind == "stacked" else 1.08 * high)
    place.set_xlabel("seconds", fontsize=8)


def _range(lines: Sequence[tuple[str, Series]]) -> tuple[float, float]:
    values = [value for _, series in lines for _, value in series.points]
    return min(values, default=0.0), max(values, default=0.0)


def _stack(place: Axes, lines: Sequence[tuple[str, Series]]) -> None:
    moments = sorted({moment for _, series in lines for moment, _ in series.points})
    rows = []
    for _, series in lines:
        known = dict(series.points)
        rows.append([known.get(moment, 0.0) for moment in moments])
    place.stackplot(
        [moment - moments[0] for moment in moments],
        rows,
        labels=[name for name, _ in lines],
        alpha=0.7,
    )


def _seconds(
    series: Series, lines: Sequence[tuple[str, Series]]
) -> tuple[list[float], list[float]]:
    first = min(each.points[0][0] for _, each in lines)
    return [moment - first for moment, _ in series.points], [value for _, value in series.points]


def legend(query: Query, series: Series) -> str:
    """The name of a line, as Grafana fills it in."""
    return re.sub(
        r"\{\{(\w+)\}\}", lambda found: str(series.labels.get(found[1], "")), query.legend
    )
