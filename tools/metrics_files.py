"""docs/reference/metrics.md from the contract's list."""

from __future__ import annotations

from pathlib import Path

from chiasm_contract.metric_specs import markdown


def outputs(root: Path) -> dict[Path, str]:
    return {root / "docs" / "reference" / "metrics.md": markdown()}
