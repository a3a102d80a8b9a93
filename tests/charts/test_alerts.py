"""Alert rules: of metrics that exist, each with its words and a page that says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_contract.metric_specs import METRIC_SPECS

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "charts" / "chiasm" / "alerts").glob("*.yaml"))
RULES: list[dict[str, Any]] = [
    rule
    for path in FILES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
METRICS = {spec.name: spec for spec in METRIC_SPECS}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_asks_for_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    asked = re.findall(r"\bchiasm_\w+", rule["expr"])
    assert asked
    assert set(asked) <= set(METRICS)
    of_scrapes = {"namespace", "pod"}
    known = of_scrapes.union(*(METRICS[name].labels for name in asked))
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    joined = re.findall(r"on \(([^)]*)\)", rule["expr"])
    used |= {name.strip() for names in joined for name in names.split(",")}
    assert used <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_says_how_bad_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["for"]
    assert {"summary", "description"} <= set(rule["annotations"])
    page, _, heading = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert heading in {re.sub(r"[^\w-]", "", each.lower().replace(" ", "-")) for each in headings}


def test_there_are_rules() -> None:
    assert RULES
