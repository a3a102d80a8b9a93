"""What promtool says of the chart's rules: that they can be evaluated, when alerts fire, and when
they are silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_cluster.build.prometheus import PROMTOOL

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "tests" / "charts" / "alerts").glob("*.yaml"))


def test_the_rules_are_sound(programs: Path, watched: Any) -> None:
    files = sorted((ROOT / "charts" / "chiasm" / "alerts").glob("*.yaml"))
    assert watched.promtool.check_rules(programs / PROMTOOL, files) == ""


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_alerts_fire_and_are_silent(
    path: Path, programs: Path, watched: Any, tmp_path: Path
) -> None:
    assert watched.promtool.run_tests(programs / PROMTOOL, [path], tmp_path) == {path.name: ""}


def test_a_test_that_expects_too_much_fails(programs: Path, watched: Any, tmp_path: Path) -> None:
    """Or the tests above would prove nothing."""
    wrong = yaml.safe_load((ROOT / "tests" / "charts" / "alerts" / "cache.yaml").read_text())
    for case in wrong["tests"][0]["alert_rule_test"]:
        case["exp_alerts"] = []
    path = tmp_path / "cache.yaml"
    path.write_text(yaml.safe_dump(wrong))
    folder = tmp_path / "rules"
    folder.mkdir()
    said = watched.promtool.run_tests(programs / PROMTOOL, [path], folder)
    assert "ChiasmGuardRejects" in said["cache.yaml"]
