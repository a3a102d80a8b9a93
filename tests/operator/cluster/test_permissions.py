"""The operator with exactly the permissions that the chart grants, and no more."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def limited(
    helm: Callable[..., subprocess.CompletedProcess[str]],
    kubectl: Callable[..., str],
    kubeconfig: Path,
    namespace: str,
    tmp_path: Path,
) -> Path:
    """A kubeconfig of the chart's ServiceAccount, allowed to work in the test's namespace only."""
    rendered = helm(
        "template", "chiasm", str(ROOT / "charts" / "chiasm"), "-n", namespace,
        "--set", f"watchNamespaces={{{namespace}}}",
        "--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml",
    )  # fmt: skip
    kubectl("apply", "-f", "-", stdin=rendered.stdout)
    token = kubectl("create", "token", "chiasm", "-n", namespace).strip()
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_charts_permissions_are_enough(
    own_world: Any,
    limited: Path,
    make_operator: Callable[[Path, str], Any],
    name: str,
    eventually: Callable[..., None],
) -> None:
    operator = make_operator(limited, own_world.name)
    operator.start()
    scaling = {"maxReplicas": 2, "hpa": {"cpuUtilizationPercent": 70}}
    own_world.apply(name, replicas=2, autoscaling=scaling)
    eventually(
        lambda: own_world.condition(name, "Ready").get("status") == "True",
        "the resource should become Ready",
    )
    own_world.apply(name, replicas=1)
    eventually(
        lambda: (
            not {("PodDisruptionBudget", name), ("HorizontalPodAutoscaler", name)}
            & own_world.children(name).keys()
        ),
        "the budget and the autoscaler should be pruned",
    )
    own_world.delete(own_world.child("Service", name))
    eventually(
        lambda: ("Service", name) in own_world.children(name), "the Service should come back"
    )
    assert "forbidden" not in operator.log.lower()
