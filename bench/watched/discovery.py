"""What a Prometheus operator makes of a PodMonitor: the part of a scrape configuration that finds
its pods, for Prometheus' own discovery through an API server. And what the docs give to those who
have no such operator.

Knows the fields that the chart's monitors have, and refuses others.
(prometheus-operator, Documentation/api-reference/api.md, PodMonitorSpec.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Config = dict[str, Any]
_KNOWN = {"selector", "namespaceSelector", "podMetricsEndpoints"}
_KNOWN_OF_ENDPOINT = {"port", "interval", "relabelings"}


def scrape_configs(monitor: Mapping[str, Any], kubeconfig: Path) -> Iterator[Config]:
    """One for each of its endpoints.

    Raises: ValueError about a field that would be passed over.
    """
    spec, metadata = monitor["spec"], monitor["metadata"]
    of_endpoints = [set(each) - _KNOWN_OF_ENDPOINT for each in spec["podMetricsEndpoints"]]
    unknown = (set(spec) - _KNOWN).union(set(spec["selector"]) - {"matchLabels"}, *of_endpoints)
    if unknown:
        raise ValueError(f"PodMonitor {metadata['name']}: cannot follow {sorted(unknown)}")
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        yield {
            "job_name": f"podMonitor/{metadata['namespace']}/{metadata['name']}/{number}",
            "scrape_interval": endpoint["interval"],
            "kubernetes_sd_configs": [_discovery(monitor, kubeconfig)],
            "relabel_configs": [
                *_chosen(spec["selector"].get("matchLabels", {}), endpoint["port"]),
                *_labels(f"{metadata['namespace']}/{metadata['name']}"),
                *map(_relabeling, endpoint.get("relabelings", ())),
            ],
        }


def documented(text: str, kubeconfig: Path) -> list[Config]:
    """The scrape configurations that a page's YAML blocks show, for a cluster seen from outside."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [job for block in blocks for job in yaml.safe_load(block).get("scrape_configs", ())]
    for job in found:
        for discovery in job["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(kubeconfig)
    return found


def _discovery(monitor: Mapping[str, Any], kubeconfig: Path) -> Config:
    found: Config = {"role": "pod", "kubeconfig_file": str(kubeconfig)}
    where = monitor["spec"].get("namespaceSelector", {})
    if not where.get("any"):
        names = where.get("matchNames") or [monitor["metadata"]["namespace"]]
        found["namespaces"] = {"names": list(names)}
    return found


def _chosen(labels: Mapping[str, str], port: str) -> Iterator[Config]:
    for name, value in labels.items():
        yield _keep(f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}", value)
    yield _keep("__meta_kubernetes_pod_container_port_name", port)
    yield {
        "source_labels": ["__meta_kubernetes_pod_phase"],
        "regex": "(Failed|Succeeded)",
        "action": "drop",
    }


def _keep(label: str, value: str) -> Config:
    return {"source_labels": [label], "regex": re.escape(value), "action": "keep"}


def _labels(job: str) -> Iterator[Config]:
    for source, target in (
        ("__meta_kubernetes_namespace", "namespace"),
        ("__meta_kubernetes_pod_container_name", "container"),
        ("__meta_kubernetes_pod_name", "pod"),
    ):
        yield {"source_labels": [source], "target_label": target}
    yield {"target_label": "job", "replacement": job}


def _relabeling(written: Mapping[str, Any]) -> Config:
    """The same in Prometheus' spelling: sourceLabels becomes source_labels."""
    return {re.sub("[A-Z]", lambda m: f"_{m[0].lower()}", key): v for key, v in written.items()}
