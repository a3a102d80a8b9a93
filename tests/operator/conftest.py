"""Factories of resources, pods and states, as the API server and the sidecars would send them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_contract import names
from chiasm_contract.messages import IdentityReport, PodState
from chiasm_contract.traffic import TrafficReport
from chiasm_operator import render
from chiasm_operator.reconcile import children
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.reconcile.rollout import Asked, Decision, decide, look
from chiasm_operator.render import Target
from chiasm_operator.render.revision import record_of
from chiasm_operator.render.traffic import address
from chiasm_operator.resource import Images, from_manifest, parse_spec

ROOT = Path(__file__).resolve().parents[2]
UID = "11111111-2222-3333-4444-555555555555"
IMAGES = Images("example.com/worker:1", "example.com/sidecar:1", "example.com/sidecar-peers:1")

TargetFactory = Callable[..., Target]


def example(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(
        (ROOT / "crds" / "examples" / f"{name}.yaml").read_text()
    )
    return loaded


@pytest.fixture
def make_target() -> TargetFactory:
    """A target of an example, its spec's sections updated by keyword."""

    def make(
        name: str = "minimal",
        *,
        status: dict[str, Any] | None = None,
        images: Images = IMAGES,
        generation: int = 1,
        **sections: Any,
    ) -> Target:
        body = copy.deepcopy(example(name))
        body["metadata"] |= {"namespace": "vision", "uid": UID, "generation": generation}
        body["spec"] |= sections
        body["status"] = status or {}
        resource = from_manifest(body)
        return Target(resource, parse_spec(resource.spec), images)

    return make


@pytest.fixture
def make_pod() -> Callable[..., dict[str, Any]]:
    """A pod of a target's revision: starting unless told otherwise."""

    def make(
        target: Target,
        name: str = "pod-1",
        *,
        ready: bool = False,
        revision: str | None = None,
        conditions: list[dict[str, Any]] | None = None,
        init_statuses: list[dict[str, Any]] | None = None,
        statuses: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        return {
            "metadata": {
                "name": name,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {**target.labels, names.LABEL_REVISION: revision or target.revision},
            },
            "spec": copy.deepcopy(render.pod.render(target)["spec"]),
            "status": {
                "phase": "Running" if ready else "Pending",
                "podIP": "10.0.0.1",
                "conditions": [
                    {"type": "Ready", "status": "True" if ready else "False"},
                    *(conditions or []),
                ],
                "initContainerStatuses": init_statuses or [],
                "containerStatuses": statuses or [],
            },
        }

    return make


@pytest.fixture
def make_state() -> Callable[..., PodState]:
    """What a sidecar says: ready, with an identity of these fields."""

    def make(
        *,
        reason: str = "Ready",
        message: str = "Ready.",
        tier_faults: tuple[str, ...] = (),
        **fields: Any,
    ) -> PodState:
        report = IdentityReport(
            compute_fp="c" * 64, repr_fp="d" * 64, incarnation="1", fields=fields
        )
        return PodState.model_validate(
            {
                "ready": reason == "Ready",
                "reason": reason,
                "message": message,
                "model_id": "m",
                "identity": report if fields else None,
                "tier_faults": tier_faults,
            }
        )

    return make


def decision_of(target: Target, observed: Observed) -> Decision:
    """What is decided on this look."""
    return decide(Asked.of(target), look(target, observed), partial(address, target), 0)


@pytest.fixture
def decided() -> Callable[[Target, Observed], Decision]:
    """What is decided on a look."""
    return decision_of


@pytest.fixture
def wanted() -> Callable[[Target, Observed], tuple[dict[str, Any], ...]]:
    """The children that a look asks for."""

    def make(target: Target, observed: Observed) -> tuple[Any, ...]:
        decision = decision_of(target, observed)
        return children.desired(target, record_of(target), observed, decision)

    return make


def _reported(item: dict[str, Any]) -> dict[str, Any]:
    if item["kind"] != "Deployment":
        return item
    replicas = item["spec"]["replicas"]
    item["metadata"]["generation"] = 1
    item["status"] = {
        "observedGeneration": 1,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "conditions": [
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
        ],
    }
    return item


@pytest.fixture
def make_observed() -> Callable[..., Observed]:
    """Everything as the target wants it, the rollout complete, the plan followed by these pods."""

    def make(target: Target, *pods: dict[str, Any], **more: Any) -> Observed:
        observed = Observed(pods=tuple(pods), **more)
        for _ in range(3):
            decision = decision_of(target, observed)
            live = children.desired(target, record_of(target), observed, decision)
            traffic = TrafficReport(epoch=decision.plan.epoch)
            states = {
                name: state.model_copy(update={"traffic": traffic})
                for name, state in observed.states.items()
            }
            observed = replace(
                observed,
                children=tuple(_reported(copy.deepcopy(dict(item))) for item in live),
                states=states,
            )
        return observed

    return make


@pytest.fixture
def load_example() -> Callable[[str], dict[str, Any]]:
    """An example manifest by name."""
    return example
