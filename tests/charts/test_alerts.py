"""Alert rules: of metrics that exist, each with its words, a page that says what to do, and tests.

What promtool says of them, and of the tests beside this file, is in tests/prometheus.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_alerts import burn_rate
from chiasm_contract.metric_specs import METRIC_SPECS

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "charts" / "chiasm" / "alerts").glob("*.yaml"))
ALL: list[dict[str, Any]] = [
    rule
    for path in FILES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in ALL if "alert" in rule]
RECORDED = {rule["record"] for rule in ALL if "record" in rule}
SPECS = {name: spec for spec in METRIC_SPECS for name in spec.sample_names}
# What a scrape adds: of the pod that was asked.
OF_SCRAPES = {"namespace", "pod", "resource"}
TESTS = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))


def name_of(rule: dict[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def names_in(expr: str) -> set[str]:
    """Every metric that an expression asks for, ours and recorded ones."""
    bare = re.sub(r'"[^"]*"', '""', expr)
    return set(re.findall(r"\b(?:chiasm|vllm)[\w:]*\w", bare))


@pytest.mark.parametrize("rule", ALL, ids=name_of)
def test_a_rule_asks_for_metrics_and_labels_that_there_are(rule: dict[str, Any]) -> None:
    asked = names_in(rule["expr"])
    assert asked
    assert asked <= set(SPECS) | RECORDED
    known = OF_SCRAPES.union({"le"}, *(SPECS[name].labels for name in asked - RECORDED))
    if asked & RECORDED:
        known.add("modality")
    used = set(re.findall(r"\$labels\.(\w+)", str(rule.get("annotations", ""))))
    for labels in re.findall(r"\b(?:on|by) \(([^)]*)\)", rule["expr"]):
        used |= {name.strip() for name in labels.split(",") if name.strip()}
    used |= set(re.findall(r"[{,]\s*(\w+)\s*[=!]~?\"", rule["expr"]))
    assert used <= known


def misread(expr: str) -> set[str]:
    """Counters that are read as they stand, and gauges that are taken for counters."""
    growing = set(re.findall(r"\b(?:rate|increase)\(((?:chiasm|vllm)[\w:]*)", expr))
    return {
        name
        for name in names_in(expr) & set(SPECS)
        if (SPECS[name].kind == "gauge") == (name in growing)
    }


@pytest.mark.parametrize("rule", ALL, ids=name_of)
def test_what_grows_is_read_as_a_rate_and_nothing_else_is(rule: dict[str, Any]) -> None:
    assert misread(rule["expr"]) == set()


def test_what_is_misread_shows() -> None:
    assert misread("rate(chiasm_sidecar_ready[5m])") == {"chiasm_sidecar_ready"}
    assert misread("chiasm_sidecar_requests_total > 9") == {"chiasm_sidecar_requests_total"}


@pytest.mark.parametrize("rule", ALERTS, ids=name_of)
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Chiasm")
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["for"]
    assert {"summary", "description"} <= set(rule["annotations"])
    page, _, heading = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert heading in {re.sub(r"[^\w-]", "", each.lower().replace(" ", "-")) for each in headings}


@pytest.mark.parametrize("rule", ALERTS, ids=name_of)
def test_an_alert_is_tested_both_ways(rule: dict[str, Any]) -> None:
    """That it fires, with the labels that lead to who can help, and that it stays silent."""
    cases = [
        case
        for path in TESTS
        for group in yaml.safe_load(path.read_text())["tests"]
        for case in group["alert_rule_test"]
        if case["alertname"] == rule["alert"]
    ]
    firing = [alert for case in cases for alert in case["exp_alerts"]]
    assert firing
    assert any(not case["exp_alerts"] for case in cases)
    assert {alert["exp_labels"]["severity"] for alert in firing} == {rule["labels"]["severity"]}


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names) >= 20


def test_an_alert_has_a_runbook_page_for_itself() -> None:
    pages = [rule["annotations"]["runbook_url"] for rule in ALERTS]
    of_configuration = {page for page in pages if page.startswith("docs/configuration.md")}
    own = [page for page in pages if page not in of_configuration]
    assert len(set(own)) == len(own)


def test_each_promise_is_kept_by_two_alerts() -> None:
    for objective in burn_rate.OBJECTIVES:
        stem = objective.alert
        assert {name_of(r) for r in ALERTS} >= {f"{stem}Fast", f"{stem}Slow"}
    expr = next(r for r in ALERTS if r["alert"] == "ChiasmErrorBurnFast")["expr"]
    assert "chiasm:failed_requests:ratio_rate1h > 0.0144" in expr
    assert "chiasm:failed_requests:ratio_rate30m > 0.006" in expr


def test_limits_are_borders_of_buckets() -> None:
    """Between two borders nobody knows how many were slower."""
    for rule in ALL:
        for metric, limit in re.findall(r'(\w+)_bucket\{le="([^"]+)"\}', rule["expr"]):
            assert float(limit) in SPECS[f"{metric}_bucket"].buckets
