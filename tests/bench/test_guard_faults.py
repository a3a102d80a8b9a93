"""The benchmark of faults, small: nothing stale is served, what bites where nobody looks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_kind_of_fault_is_served() -> None:
    command = [sys.executable, str(ROOT / "bench" / "guard_faults.py"), "--copies", "1", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *table, totals = ended.stdout.splitlines()
    figures = ast.literal_eval(totals)
    assert figures["stale_served"] == 0
    assert len(table) - 1 == figures["num_cases"], "every kind in each of its tiers"
    # A service that takes everything serves them: they are faults.
    assert figures["injected"] > 4 * figures["without_effect"]
