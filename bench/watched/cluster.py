"""A loaded cluster to look at: the chart, a resource with every tier and with secrets from a real
OpenBao, and a canary of it that is being compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import yaml
from chiasm_contract import names
from chiasm_tour import tour
from rotating import site

_SYSTEM = tour.SYSTEM_NAMESPACE
_SECONDS = 600


def manifest(*, canary: bool) -> dict[str, Any]:
    """The resource; another spec whose revision takes a part of the traffic."""
    made = site.manifest("direct")
    spec = made["spec"]
    spec["replicas"] = 1
    spec["cost"] = {"replicaHour": "2.50", "currency": "EUR"}
    spec["tiers"]["disk"] = {"maxBytes": "128Mi"}
    spec["rollout"] = {
        "drainSeconds": 3,
        "analysis": {"intervalSeconds": 2, "minSamples": 100_000, "minAgreementPercent": 95},
    }
    if canary:
        spec["engine"]["maxNumSeqs"] = 7
        steps = [{"mirror": {"percent": 100}}, {"setWeight": 25}, {"analysis": {"seconds": 3600}}]
        spec["rollout"]["steps"] = steps
    return made


def serve(stand: site.Stand) -> None:
    """The resource, ready."""
    stand.apply(manifest(canary=False))
    _until(stand, lambda status: status.get("phase") == "Healthy", "a resource that is healthy")


def begin_canary(stand: site.Stand) -> None:
    """Its canary, with a part of the traffic."""
    stand.apply(manifest(canary=True))
    _until(stand, _is_compared, "a canary that has its part")


def monitors(stand: site.Stand, interval: str) -> list[dict[str, Any]]:
    """The chart's PodMonitors."""
    rendered = stand.cluster.helm(
        "template", "chiasm", str(tour.ROOT / "charts" / "chiasm"), "--namespace", _SYSTEM,
        "--set", "podMonitors.enabled=true", "--set", f"podMonitors.interval={interval}",
        "--show-only", "templates/podmonitors.yaml",
    )  # fmt: skip
    return [each for each in yaml.safe_load_all(rendered) if each]


def num_pods(stand: site.Stand) -> int:
    """Those that Prometheus must have found: of the resource, and the operator's."""
    lists = (
        ("-n", tour.NAMESPACE, "-l", f"{names.LABEL_OWNER}={site.NAME}"),
        ("-n", _SYSTEM, "-l", f"{names.LABEL_APP}=chiasm-operator"),
    )
    found = (json.loads(stand.cluster.kubectl("get", "pods", "-o", "json", *ls)) for ls in lists)
    return sum(len(each["items"]) for each in found)


def _is_compared(status: dict[str, Any]) -> bool:
    rollout = status.get("rollout", {})
    return (rollout.get("weight"), rollout.get("currentStep")) == ("25", 2)


def _until(stand: site.Stand, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
    until = time.monotonic() + _SECONDS
    status: dict[str, Any] = {}
    while time.monotonic() < until:
        found = stand.cluster.kubectl("get", "mmi", site.NAME, "-n", tour.NAMESPACE, "-o", "json")
        status = json.loads(found).get("status", {})
        if holds(status):
            return
        time.sleep(1)
    raise SystemExit(f"There is no {what} after {_SECONDS} s: {json.dumps(status)}")
