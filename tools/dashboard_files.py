"""charts/chiasm/dashboards from observability/chiasm_dashboards."""

from __future__ import annotations

from pathlib import Path

from chiasm_dashboards.boards import BOARDS
from chiasm_dashboards.grafana import to_json


def outputs(root: Path) -> dict[Path, str]:
    folder = root / "charts" / "chiasm" / "dashboards"
    return {folder / f"{board.name}.json": to_json(board) for board in BOARDS}
