"""What the golden render of all options holds of alerts, dashboards and monitors: the files as they
are, but for what an option changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "chiasm"
OPTIONS: dict[str, Any] = yaml.safe_load((CHART / "ci" / "all-options.yaml").read_text())
RENDERED: list[dict[str, Any]] = [
    each
    for each in yaml.safe_load_all(
        (ROOT / "tests" / "golden" / "chart-all-options.yaml").read_text()
    )
    if each
]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in RENDERED if each["kind"] == kind]


def test_nothing_of_it_is_there_unasked() -> None:
    text = (ROOT / "tests" / "golden" / "chart-defaults.yaml").read_text()
    kinds = {each["kind"] for each in yaml.safe_load_all(text) if each}
    assert not kinds & {"PrometheusRule", "PodMonitor", "ConfigMap"}


def test_dashboards_come_through_helm_unchanged() -> None:
    """Grafana's `{{label}}` is Helm's own language."""
    for path in (CHART / "dashboards").glob("*.json"):
        (holder,) = [each for each in of_kind("ConfigMap") if path.name in each["data"]]
        assert json.loads(holder["data"][path.name]) == json.loads(path.read_text())
        assert holder["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert OPTIONS["dashboards"]["labels"].items() <= holder["metadata"]["labels"].items()


def test_rules_differ_from_the_files_by_the_options_only() -> None:
    limits = OPTIONS["alerts"]
    for path in (CHART / "alerts").glob("*.yaml"):
        text = (
            path.read_text()
            .replace('first_token_seconds_bucket{le="3.0"}',
                     f'first_token_seconds_bucket{{le="{limits["firstTokenSeconds"]}"}}')
            .replace('inter_token_seconds_bucket{le="0.2"}',
                     f'inter_token_seconds_bucket{{le="{limits["tokenGapSeconds"]}"}}')
            .replace("runbook_url: docs/", f"runbook_url: {limits['runbookBase']}docs/")
        )  # fmt: skip
        name = f"chiasm-{path.stem}"
        (rule,) = [each for each in of_kind("PrometheusRule") if each["metadata"]["name"] == name]
        assert rule["spec"] == yaml.safe_load(text)
        assert limits["labels"].items() <= rule["metadata"]["labels"].items()


def test_the_options_reach_every_rule_that_they_are_about() -> None:
    text = json.dumps([each["spec"] for each in of_kind("PrometheusRule")])
    assert 'le=\\"1.5\\"' in text
    assert 'le=\\"0.1\\"' in text
    for default in ('le=\\"3.0\\"', 'le=\\"0.2\\"', '"docs/'):
        assert default not in text


def test_pods_are_scraped_with_the_label_of_their_resource() -> None:
    pods, operator = (
        next(each["spec"] for each in of_kind("PodMonitor") if each["metadata"]["name"] == name)
        for name in ("chiasm-pods", "chiasm-operator")
    )
    (endpoint,) = pods["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    assert endpoint["interval"] == OPTIONS["podMonitors"]["interval"]
    assert "resource" in [each["targetLabel"] for each in endpoint["relabelings"]]
    assert pods["namespaceSelector"] == {"matchNames": OPTIONS["watchNamespaces"]}
    (deployment,) = of_kind("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert operator["selector"]["matchLabels"].items() <= labels.items()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = [each["port"] for each in operator["podMetricsEndpoints"]]
    assert port in [each["name"] for each in container["ports"]]
