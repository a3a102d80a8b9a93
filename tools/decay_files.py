"""charts/chiasm/alerts/decay.yaml from the measured curve in docs/decay.json."""

from __future__ import annotations

from pathlib import Path

from chiasm_worker.decay.record import Decay, recording_rules


def outputs(root: Path) -> dict[Path, str]:
    decay = Decay.read(root / "docs" / "decay.json")
    return {root / "charts" / "chiasm" / "alerts" / "decay.yaml": recording_rules(decay)}
