"""What a PodMonitor says becomes a scrape configuration whole, or not at all."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KUBECONFIG = Path("/somewhere/kubeconfig")
MONITOR: dict[str, Any] = {
    "metadata": {"name": "chiasm-pods", "namespace": "chiasm-system"},
    "spec": {
        "selector": {"matchLabels": {"app.kubernetes.io/managed-by": "chiasm-operator"}},
        "podMetricsEndpoints": [
            {
                "port": "metrics",
                "interval": "30s",
                "relabelings": [
                    {
                        "sourceLabels": ["__meta_kubernetes_pod_label_chiasm_dev_name"],
                        "targetLabel": "resource",
                    }
                ],
            }
        ],
    },
}
ScrapeConfigs = Callable[[dict[str, Any], Path], Any]


@pytest.fixture
def scrape_configs(monkeypatch: pytest.MonkeyPatch) -> ScrapeConfigs:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    found: ScrapeConfigs = importlib.import_module("watched.discovery").scrape_configs
    return found


def test_a_monitor_is_followed(scrape_configs: ScrapeConfigs) -> None:
    (config,) = scrape_configs(MONITOR, KUBECONFIG)
    assert config["scrape_interval"] == "30s"
    (discovery,) = config["kubernetes_sd_configs"]
    assert discovery["namespaces"] == {"names": ["chiasm-system"]}, "its own, where it names none"
    kept = {
        rule["source_labels"][0]: rule["regex"]
        for rule in config["relabel_configs"]
        if rule.get("action") == "keep"
    }
    assert kept == {
        "__meta_kubernetes_pod_label_app_kubernetes_io_managed_by": r"chiasm\-operator",
        "__meta_kubernetes_pod_container_port_name": "metrics",
    }
    assert config["relabel_configs"][-1] == {
        "source_labels": ["__meta_kubernetes_pod_label_chiasm_dev_name"],
        "target_label": "resource",
    }


@pytest.mark.parametrize(
    ("selector", "expected"),
    [({"any": True}, None), ({"matchNames": ["shop"]}, {"names": ["shop"]})],
)
def test_namespaces(
    scrape_configs: ScrapeConfigs, selector: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    monitor = copy.deepcopy(MONITOR)
    monitor["spec"]["namespaceSelector"] = selector
    (config,) = scrape_configs(monitor, KUBECONFIG)
    assert config["kubernetes_sd_configs"][0].get("namespaces") == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(sampleLimit=9),
        lambda spec: spec["podMetricsEndpoints"][0].update(path="/elsewhere"),
        lambda spec: spec.update(selector={"matchExpressions": []}),
    ],
)
def test_what_cannot_be_followed_is_refused(
    scrape_configs: ScrapeConfigs, change: Callable[[dict[str, Any]], None]
) -> None:
    monitor = copy.deepcopy(MONITOR)
    change(monitor["spec"])
    with pytest.raises(ValueError, match="chiasm-pods"):
        list(scrape_configs(monitor, KUBECONFIG))
