"""A pod is explained by what it is made of, not by a spec that came after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.messages import PodState
from chiasm_operator.reconcile.diagnosis.pods import diagnose
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]
MakePod = Callable[..., dict[str, Any]]
MakeState = Callable[..., PodState]

NOW = "2026-01-02T00:10:00Z"
CLAIM = {"path": {"claimName": "models", "path": "old"}}
IMAGE = {"image": {"reference": "example.com/model:1"}}


@pytest.fixture
def told(make_target: MakeTarget) -> Callable[..., str]:
    """What is said of a pod while the newest spec is another one."""

    def say(pod: dict[str, Any], *events: dict[str, Any], state: PodState | None = None) -> str:
        problem = diagnose(make_target(), pod, state, events, NOW)
        assert problem is not None
        return problem.message

    return say


def killed(container: str) -> dict[str, Any]:
    last = {"exitCode": 137, "reason": "OOMKilled"}
    return {"name": container, "state": {"waiting": {}}, "lastState": {"terminated": last}}


def unplaced(message: str) -> dict[str, Any]:
    return {"type": "PodScheduled", "status": "False", "message": message}


@pytest.mark.parametrize(
    ("resources", "container"),
    [
        ({"limits": {"memory": "2Gi"}}, "worker"),
        ({"sidecar": {"limits": {"memory": "2Gi"}}}, "sidecar"),
    ],
)
def test_its_own_limit(
    resources: dict[str, Any],
    container: str,
    make_target: MakeTarget,
    make_pod: MakePod,
    told: Callable[..., str],
) -> None:
    pod = make_pod(make_target(resources=resources), statuses=[killed(container)])
    assert "needed more than its limit of 2Gi" in told(pod)


def test_its_own_device(
    make_target: MakeTarget, make_pod: MakePod, told: Callable[..., str]
) -> None:
    gpu = make_target(resources={"device": {"type": "amd"}})
    text = unplaced("0/1 nodes are available: 1 Insufficient amd.com/gpu.")
    assert "No node has a free amd.com/gpu:" in told(make_pod(gpu, conditions=[text]))
    text = unplaced("0/1 nodes are available: 1 cannot allocate all claims.")
    claimed = make_pod(make_target("autoscaled"), conditions=[text])
    assert "ResourceClaimTemplate 'one-small-gpu'" in told(claimed)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (CLAIM, "(spec.model.source.path: claim 'models')"),
        (IMAGE, "(spec.model.source.image: 'example.com/model:1')"),
    ],
)
def test_its_own_model(
    source: dict[str, Any],
    words: str,
    make_target: MakeTarget,
    make_pod: MakePod,
    make_state: MakeState,
    told: Callable[..., str],
) -> None:
    failed = make_state(reason="ModelLoadFailed", message="No config.json.")
    pod = make_pod(make_target(model={"source": source}))
    assert told(pod, state=failed) == f"Pod pod-1: No config.json. {words}"


def test_its_own_model_image(
    make_target: MakeTarget, make_pod: MakePod, told: Callable[..., str]
) -> None:
    pod = make_pod(make_target(model={"source": IMAGE}))
    event = {"reason": "Failed", "message": 'Failed to pull image "example.com/model:1": none'}
    assert told(pod, event).startswith("Image 'example.com/model:1' (spec.model.source.image.")


def test_its_own_keys(
    make_target: MakeTarget, make_pod: MakePod, make_state: MakeState, told: Callable[..., str]
) -> None:
    refused = make_state(reason="TenantKeysRefused", message="Tenant 'acme' has no API key.")
    message = told(make_pod(make_target("complete")), state=refused)
    assert "spec.tenants.keysSecret: 'catalogue-api-keys'" in message
