"""What promtool says of the chart's rules, and of the tests of their firing and their silence.

promtool compares an alert's words too, filled in. The tests are about when, for which labels and
how badly, so they are run on copies of the rules without words; that those can be filled in, the
check of the rules themselves says.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts" / "chiasm" / "alerts"
TESTS = ROOT / "tests" / "charts" / "alerts"
_SECONDS = 300


def check_rules(promtool: Path, files: Sequence[Path]) -> str:
    """What is wrong with rule files; empty when nothing is."""
    return _run([str(promtool), "check", "rules", "--lint=all", "--lint-fatal", *map(str, files)])


def run_tests(promtool: Path, tests: Sequence[Path], folder: Path) -> dict[str, str]:
    """File -> what went wrong with its tests; empty where nothing did."""
    for path in RULES.glob("*.yaml"):
        (folder / path.name).write_text(yaml.safe_dump(without_words(load(path))))
    found = {}
    for path in tests:
        copied = folder / f"test-{path.name}"
        copied.write_text(path.read_text())
        found[path.name] = _run([str(promtool), "test", "rules", str(copied)])
    return found


def load(path: Path) -> dict[str, Any]:
    """A file of rules or of tests."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def without_words(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The same rules without annotations."""
    groups = [
        {
            **group,
            "rules": [
                {key: value for key, value in rule.items() if key != "annotations"}
                for rule in group["rules"]
            ],
        }
        for group in rules["groups"]
    ]
    return {"groups": groups}


def alerts() -> dict[str, dict[str, Any]]:
    """Name -> rule of every alert."""
    return {
        rule["alert"]: rule
        for path in sorted(RULES.glob("*.yaml"))
        for group in load(path)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def tested_both_ways(tests: Sequence[Path]) -> set[str]:
    """Alerts that these files expect to fire at one time and to be silent at another."""
    fires: set[str] = set()
    silent: set[str] = set()
    for path in tests:
        for group in load(path)["tests"]:
            for case in group["alert_rule_test"]:
                (fires if case["exp_alerts"] else silent).add(case["alertname"])
    return fires & silent


def _run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr
