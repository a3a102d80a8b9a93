"""A resource as samples: what its status says, and nothing where that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.instants import to_seconds
from chiasm_operator.metering.readings import readings

NOW = to_seconds("2026-05-01T12:00:00Z")


def resource(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "vision", "name": "reader"}
    return {"metadata": metadata, "spec": spec, **({"status": status} if status else {})}


def samples(manifest: dict[str, Any]) -> dict[str, float]:
    """What follows the common prefix, with the label's value -> value."""
    found = {}
    for name, labels, value in readings(manifest, NOW):
        key = " ".join([name.removeprefix("chiasm_operator_resource_"), *labels.values()])
        assert key not in found
        found[key] = value
    return found


ROLLOUT = {
    "state": "Verifying",
    "stableRevision": "v1-a",
    "canaryRevision": "v1-b",
    "weight": "2.5",
    "stepBegan": "2026-05-01T11:50:00Z",
    "stepDeadline": "2026-05-01T11:59:00Z",
}


def test_a_rollout_is_told_by_role_and_state() -> None:
    told = samples(resource({"rollout": ROLLOUT}))
    assert told["weight_percent stable"] == 97.5
    assert told["weight_percent canary"] == 2.5
    assert told["rollout_state Verifying"] == 1
    assert sum(v for k, v in told.items() if k.startswith("rollout_state ")) == 1
    assert told["step_age_seconds"] == 600
    assert told["step_overdue_seconds"] == 60
    assert told["held_seconds"] == 0
    assert told["revision_info stable v1-a"] == told["revision_info canary v1-b"] == 1


def test_without_a_canary_stable_has_everything() -> None:
    told = samples(resource({"rollout": {"stableRevision": "v1-a", "weight": "50"}}))
    assert (told["weight_percent stable"], told["weight_percent canary"]) == (100, 0)
    assert [key for key in told if key.startswith("revision_info")] == ["revision_info stable v1-a"]


def test_what_is_to_end_later_is_not_overdue() -> None:
    rollout = ROLLOUT | {"stepDeadline": "2026-05-01T13:00:00Z"}
    assert samples(resource({"rollout": rollout}))["step_overdue_seconds"] == 0


def test_conditions_are_three_valued() -> None:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "Degraded", "status": "False"},
        {"type": "IdentityVerified", "status": "Unknown"},
        {"type": "SomebodyElses", "status": "True"},
        {"type": "Paused", "status": "Perhaps"},
    ]
    told = samples(resource({"phase": "Healthy", "conditions": conditions}))
    of = {key: value for key, value in told.items() if key.startswith("condition ")}
    assert of == {
        "condition Ready": 1, "condition Degraded": 0, "condition IdentityVerified": -1,
    }  # fmt: skip
    assert (told["phase Healthy"], told["phase Degraded"]) == (1, 0)


def test_replicas_are_those_of_the_status() -> None:
    status = {"replicas": 5, "updatedReplicas": 2, "readyReplicas": 1}
    told = samples(resource(status, replicas=4))
    states = ("desired", "existing", "updated", "ready")
    assert [told[f"replicas {state}"] for state in states] == [4, 5, 2, 1]
    assert [samples(resource())[f"replicas {state}"] for state in states] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ({"replicaHour": "2.50"}, {"cost_per_hour USD": 7.5}),
        ({"replicaHour": 2, "currency": "EUR"}, {"cost_per_hour EUR": 6}),
        ({"replicaHour": "0.1", "currency": "CHF"}, {"cost_per_hour CHF": 0.3}),
        ({"replicaHour": "2,50"}, {}),
        (None, {}),
    ],
)
def test_what_the_existing_pods_cost(cost: Any, expected: dict[str, float]) -> None:
    spec = {} if cost is None else {"cost": cost}
    told = samples(resource({"replicas": 3}, **spec))
    assert {key: value for key, value in told.items() if key.startswith("cost")} == expected


@pytest.mark.parametrize(
    "rollout",
    [
        {"state": "Dancing"},
        {"stepBegan": "soon"},
        {"weight": None},
        {"weight": "half"},
        {"weight": "nan"},
        {"weight": "1e400"},
    ],
)
def test_a_rollout_that_somebody_edited_is_left_out(rollout: dict[str, Any]) -> None:
    told = samples(resource({"rollout": ROLLOUT | rollout, "phase": "Healthy"}))
    assert told["phase Healthy"] == 1
    assert not [key for key in told if key.startswith(("weight", "rollout", "step"))]
