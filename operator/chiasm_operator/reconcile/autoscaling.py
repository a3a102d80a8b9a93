"""What became of the autoscaler that `spec.autoscaling` asks for, in its own words.

It is told in a condition of its own: an autoscaler that cannot see its metric leaves the pods as
they are, so nothing that serves is degraded by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chiasm_contract.conditions import ConditionType, Finding, Reason, Truth

from chiasm_operator.reconcile.diagnosis.refusals import NOT_INSTALLED
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
from chiasm_operator.render.autoscaler import HPA, SCALED_OBJECT
from chiasm_operator.resource import Manifest

_REMEDIES = {
    "FailedGetContainerResourceMetric": " Is metrics-server installed and are pods running?",
    "FailedGetPodsMetric": " Does an adapter offer this metric (custom.metrics.k8s.io)?",
}


def _finding(status: Truth, reason: Reason, message: str) -> Finding:
    return Finding(ConditionType.AUTOSCALED, status, reason, message)


def judge(target: Target, observed: Observed, refused: Sequence[Problem]) -> Finding | None:
    """The finding; None when no autoscaler is asked for. `refused`: why a child was not written."""
    chosen = target.spec.autoscaling
    if chosen is None:
        return None
    keda = NOT_INSTALLED[SCALED_OBJECT]
    if keda in refused:
        return _finding(Truth.FALSE, keda.reason, keda.message)
    contested = target.resource.appliers_of_replicas
    if contested:
        return _finding(
            Truth.FALSE,
            Reason.REPLICAS_CONTESTED,
            f"spec.replicas is in what {contested[0]!r} applies, which undoes the autoscaler each "
            "time; leave it out there, or leave spec.autoscaling out.",
        )
    kind = SCALED_OBJECT if chosen.keda else HPA
    live = observed.child(kind, target.name)
    said = _conditions(live) if live else {}
    if not said:
        return _finding(
            Truth.UNKNOWN, Reason.NOT_REPORTED, f"{kind} {target.name!r} has not reported yet."
        )
    return _scaled_object(target, said) if chosen.keda else _hpa(target, said)


def _conditions(live: Manifest) -> Mapping[str, Manifest]:
    return {item["type"]: item for item in live.get("status", {}).get("conditions") or ()}


def _inactive(kind: str, target: Target, item: Manifest) -> Finding:
    reason = item.get("reason", "")
    text = f"{kind} {target.name!r} cannot scale: {reason}: {item.get('message', '')}."
    return _finding(Truth.FALSE, Reason.AUTOSCALER_INACTIVE, text + _REMEDIES.get(reason, ""))


def _hpa(target: Target, said: Mapping[str, Manifest]) -> Finding:
    for name in ("AbleToScale", "ScalingActive"):
        item = said.get(name, {})
        if item.get("status") == "False":
            return _inactive(HPA, target, item)
    limited = said.get("ScalingLimited", {})
    words = limited.get("message", "") if limited.get("status") == "True" else ""
    more = f" {words[0].upper()}{words[1:]}." if words else ""
    return _finding(Truth.TRUE, Reason.AUTOSCALER_ACTIVE, f"{HPA} sets spec.replicas.{more}")


def _scaled_object(target: Target, said: Mapping[str, Manifest]) -> Finding:
    item = said.get("Ready", {})
    if item.get("status") == "False":
        return _inactive(SCALED_OBJECT, target, item)
    if item.get("status") != "True":
        return _finding(
            Truth.UNKNOWN, Reason.NOT_REPORTED, f"KEDA has not looked at {target.name!r} yet."
        )
    return _finding(Truth.TRUE, Reason.AUTOSCALER_ACTIVE, "KEDA sets spec.replicas.")
