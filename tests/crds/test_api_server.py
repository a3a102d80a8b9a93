"""The CRD in a real API server: every example is taken or refused as its comment says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "crds" / "examples"
INVALID = sorted(EXAMPLES.glob("invalid-*.yaml"))
Run = Callable[..., str]


@pytest.fixture(scope="module", autouse=True)
def installed(kubectl: Run) -> None:
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl("wait", "--for=condition=Established", "crd/multimodalinferences.chiasm.dev")


def test_there_are_enough_examples() -> None:
    assert len(INVALID) >= 10


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_invalid_examples_are_refused_with_path_and_remedy(path: Path, kubectl: Run) -> None:
    expected = [
        line.removeprefix("# expect: ")
        for line in path.read_text().splitlines()
        if line.startswith("# expect: ")
    ]
    assert expected, "an invalid example says what it expects"
    said = kubectl("apply", "--dry-run=server", "-f", str(path), check=False)
    assert "invalid" in said or "BadRequest" in said
    for words in expected:
        assert words in said


@pytest.mark.parametrize(
    "name", ["minimal", "complete", "claim", "autoscaled", "sharing", "environments"]
)
def test_valid_examples_are_taken(name: str, kubectl: Run) -> None:
    path = EXAMPLES / f"{name}.yaml"
    assert "dry run" in kubectl("apply", "--dry-run=server", "-f", str(path))


def test_the_stored_resource_shows_every_default(api: httpx.Client, namespace: str) -> None:
    body: dict[str, Any] = yaml.safe_load((EXAMPLES / "minimal.yaml").read_text())
    path = f"/apis/chiasm.dev/v1alpha1/namespaces/{namespace}/multimodalinferences"
    stored = api.post(path, json=body)
    stored.raise_for_status()
    spec = stored.json()["spec"]
    assert spec["engine"]["kvCacheBytes"] == "256Mi"
    assert spec["rollout"]["maxSurge"] == 1
    assert spec["resources"]["sidecar"]["requests"] == {"cpu": "100m", "memory": "128Mi"}


def test_kubectl_explain_speaks(kubectl: Run) -> None:
    said = kubectl("explain", "mmi.spec.engine.kvCacheBytes")
    assert "Memory of the cache" in said
