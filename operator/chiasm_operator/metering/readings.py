"""One resource as samples, read from its manifest as it is stored.

What the status says is what is told: it may be minutes old where the operator is, and whoever edits
it can make it say anything. What cannot be read is left out, never guessed.

Must not know: Prometheus' library, clocks, other resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from chiasm_contract.api.cost import Cost
from chiasm_contract.api.status import StatusRollout
from chiasm_contract.conditions import ConditionType, Phase, Truth
from chiasm_contract.instants import to_seconds
from chiasm_contract.metric_specs import specs_of
from chiasm_contract.traffic import WHOLE
from chiasm_contract.weights import parse_weight
from pydantic import ValidationError

from chiasm_operator.resource import Manifest

_PREFIX = "chiasm_operator_resource_"
_TRUTH = {Truth.TRUE: 1.0, Truth.FALSE: 0.0, Truth.UNKNOWN: -1.0}
_STATES = next(
    spec.labels["state"] for spec in specs_of("operator") if spec.name == f"{_PREFIX}rollout_state"
)


class Reading(NamedTuple):
    """One sample, without the labels that name the resource."""

    name: str
    labels: Mapping[str, str]
    value: float


def readings(manifest: Manifest, now_seconds: float) -> Iterator[Reading]:
    """Every sample of one resource."""
    spec, status = manifest.get("spec", {}), manifest.get("status") or {}
    for phase in Phase:
        yield Reading(f"{_PREFIX}phase", {"phase": phase}, float(status.get("phase") == phase))
    yield from _conditions(status)
    counts = {
        "desired": spec.get("replicas", 1),
        "existing": status.get("replicas", 0),
        "updated": status.get("updatedReplicas", 0),
        "ready": status.get("readyReplicas", 0),
    }
    for state, count in counts.items():
        yield Reading(f"{_PREFIX}replicas", {"state": state}, count)
    yield from _rollout(status, now_seconds)
    yield from _cost(spec, counts["existing"])


def _conditions(status: Manifest) -> Iterator[Reading]:
    known = set(ConditionType)
    for condition in status.get("conditions", ()):
        value = _TRUTH.get(condition["status"])
        if condition["type"] in known and value is not None:
            yield Reading(f"{_PREFIX}condition", {"condition": condition["type"]}, value)


def _rollout(status: Manifest, now_seconds: float) -> Iterator[Reading]:
    try:
        rollout = StatusRollout.model_validate(status.get("rollout") or {})
        weight = 100 * parse_weight(rollout.weight) / WHOLE
    except ValueError:  # pydantic's own among them
        return
    for state in _STATES:
        yield Reading(f"{_PREFIX}rollout_state", {"state": state}, float(rollout.state == state))
    canary = weight if rollout.canary_revision else 0.0
    stable = 100.0 - canary if rollout.stable_revision else 0.0
    for role, weight in (("stable", stable), ("canary", canary)):
        yield Reading(f"{_PREFIX}weight_percent", {"role": role}, weight)
    for name, instant in (
        ("step_age_seconds", rollout.step_began),
        ("step_overdue_seconds", rollout.step_deadline),
        ("held_seconds", rollout.held_since),
    ):
        since = 0.0 if instant is None else now_seconds - to_seconds(instant)
        yield Reading(f"{_PREFIX}{name}", {}, max(0.0, since))
    revisions = {"stable": rollout.stable_revision, "canary": rollout.canary_revision}
    for role, revision in revisions.items():
        if revision:
            labels = {"role": role, "revision": revision}
            yield Reading(f"{_PREFIX}revision_info", labels, 1.0)


def _cost(spec: Mapping[str, Any], replicas: int) -> Iterator[Reading]:
    if "cost" not in spec:
        return
    try:
        cost = Cost.model_validate(spec["cost"])
    except ValidationError:
        return  # the condition Ready says so: such a spec cannot be served
    labels = {"currency": cost.currency}
    yield Reading(f"{_PREFIX}cost_per_hour", labels, cost.per_hour(replicas))
