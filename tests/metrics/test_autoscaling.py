"""An autoscaler that sees real processor time: load brings pods, its end takes them again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.demo_site import asking, eventually
from tests.metrics.conftest import SERVICE, Site

pytestmark = pytest.mark.metrics

TARGET_PERCENT = 60
NUM_CLIENTS = 2


def scaled(stabilization_seconds: int) -> dict[str, Any]:
    """One to two pods, by the worker's processor time."""
    return {
        "minReplicas": 1,
        "maxReplicas": 2,
        "scaleDownStabilizationSeconds": stabilization_seconds,
        "hpa": {"cpuUtilizationPercent": TARGET_PERCENT},
    }


def test_load_brings_a_pod_and_nobody_undoes_it(site: Site) -> None:
    served = site.get("apiservice", SERVICE)["spec"]
    assert served["caBundle"]
    assert not served.get("insecureSkipTLSVerify")

    def apply(stabilization_seconds: int) -> None:
        site.apply(
            replicas=None,
            engine={"maxNumSeqs": 2, "kvCacheBytes": "128Mi"},
            autoscaling=scaled(stabilization_seconds),
        )
        site.until_ready()

    apply(3600)
    eventually(lambda: site.is_true("Autoscaled"), "the autoscaler should know the use")
    assert site.condition("Autoscaled")["reason"] == "AutoscalerActive"
    eventually(
        lambda: (used := site.used_percent()) is not None and used < TARGET_PERCENT,
        "an idle worker should use little",
    )
    assert site.replicas == 1

    with asking(site.ask, NUM_CLIENTS) as statuses:
        eventually(lambda: site.replicas == 2, "load should bring a second pod")
        assert site.writers_of_replicas() == {"kube-controller-manager"}
        eventually(lambda: site.settled(2), "the operator should follow")
        assert (site.used_percent() or 0) > TARGET_PERCENT
        assert site.is_true("Autoscaled")
        assert site.condition("Degraded")["status"] == "False"

        apply(0)  # the operator writes its children anew, the user's manifest says no number
        assert site.settled(2)
        assert site.writers_of_replicas() == {"kube-controller-manager"}
    assert set(statuses) == {200}

    eventually(lambda: site.settled(1), "without load the second pod should go")
    assert site.is_true("Autoscaled")
    assert site.is_true("Ready")
