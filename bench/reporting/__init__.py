"""Where a benchmark's figures go: one JSON object as its last line, and bench/results/NAME.json."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"


def publish(name: str, figures: dict[str, Any]) -> None:
    """Write `figures` beside the machine and the date; print them as the last line."""
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    RESULTS.mkdir(exist_ok=True)
    record = {**figures, "machine": machine}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(figures), flush=True)
