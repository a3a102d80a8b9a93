"""The alert rules of charts/chiasm/alerts that are made by code; the others are written by hand."""

from __future__ import annotations

from pathlib import Path

from chiasm_alerts.burn_rate import rules


def outputs(root: Path) -> dict[Path, str]:
    return {root / "charts" / "chiasm" / "alerts" / "slo.yaml": rules()}
