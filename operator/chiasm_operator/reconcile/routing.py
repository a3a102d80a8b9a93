"""What Gateways say of the resource's HTTPRoute, and so which plan they follow.

A route is followed when each Gateway that it names has accepted this very generation of it. Must
not know: how a rollout goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.gateway import ParentRef
from chiasm_contract.conditions import ConditionType, Finding, Reason, Truth

from chiasm_operator.reconcile.diagnosis.refusals import NOT_INSTALLED
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.reconcile.ownership import Owner, owner
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
from chiasm_operator.render.route import ROUTE
from chiasm_operator.resource import Manifest

_REMEDIES = {
    "NotAllowedByListeners": "Let the listener's allowedRoutes take routes of this namespace.",
    "NoMatchingListenerHostname": "Give spec.gateway.hostnames a name that a listener has.",
    "NoMatchingParent": "Name a listener that exists in spec.gateway.parentRefs[].sectionName.",
}


def epoch(target: Target, observed: Observed) -> int | None:
    """The plan that every Gateway follows, 0 for none; None when sidecars divide."""
    gateway = target.spec.gateway
    if gateway is None or gateway.split != "gateway":
        return None
    live = _route(target, observed)
    if live is None or _fault(target, live) is not None:
        return 0
    told = live["metadata"].get("annotations", {}).get(names.ANNOTATION_TRAFFIC_EPOCH, "")
    return int(told) if told.isdecimal() else 0


def judge(target: Target, observed: Observed, refused: Sequence[Problem]) -> Finding | None:
    """The condition; None when no Gateway is named. `refused` says why a child was not written."""
    if target.spec.gateway is None:
        return None
    if NOT_INSTALLED[ROUTE] in refused:
        return _finding(NOT_INSTALLED[ROUTE])
    live = _route(target, observed)
    if live is None:
        return _finding(_waiting(f"HTTPRoute {target.name!r} is not there yet."))
    fault = _fault(target, live)
    if fault is not None:
        return _finding(fault)
    text = f"Every Gateway that spec.gateway names follows HTTPRoute {target.name!r}."
    return Finding(ConditionType.ROUTE_ACCEPTED, Truth.TRUE, Reason.ROUTE_FOLLOWED, text)


def _finding(fault: Problem) -> Finding:
    return Finding(ConditionType.ROUTE_ACCEPTED, Truth.FALSE, fault.reason, fault.message)


def _waiting(text: str) -> Problem:
    return Problem(Reason.ROUTE_NOT_FOLLOWED, text)


def _route(target: Target, observed: Observed) -> Manifest | None:
    live = observed.child(ROUTE, target.name)
    ours = live is not None and owner(live, target.resource) is Owner.OURS
    return live if ours else None


def _fault(target: Target, live: Manifest) -> Problem | None:
    """Why some Gateway does not follow the route as it is now."""
    gateway = target.spec.gateway
    parents = gateway.parent_refs if gateway else ()
    found = (_fault_at(parent, target, live) for parent in parents)
    return next(filter(None, found), None)


def _fault_at(parent: ParentRef, target: Target, live: Manifest) -> Problem | None:
    namespace = parent.namespace or target.resource.namespace
    whom = f"Gateway {namespace}/{parent.name}"
    told = [
        _conditions(item)
        for item in live.get("status", {}).get("parents") or ()
        if _is_about(item.get("parentRef", {}), parent, target)
    ]
    if not told:
        return _waiting(
            f"No controller has looked at HTTPRoute {target.name!r} for {whom} yet. Is there such "
            "a Gateway, and does the controller of its class run?"
        )
    generation = live["metadata"].get("generation", 0)
    for conditions in told:
        for kind in ("Accepted", "ResolvedRefs"):
            item = conditions.get(kind)
            if item is None or item.get("observedGeneration", 0) < generation:
                return _waiting(f"{whom} has not taken HTTPRoute {target.name!r} as it is now yet.")
            if item["status"] != "True":
                return _refused(whom, target, item)
    return None


def _refused(whom: str, target: Target, item: Manifest) -> Problem:
    reason, said = item.get("reason", ""), str(item.get("message", "")).rstrip(".")
    text = f"{whom} refuses HTTPRoute {target.name!r}: {reason}: {said}."
    remedy = _REMEDIES.get(reason)
    return Problem(Reason.ROUTE_REFUSED, f"{text} {remedy}" if remedy else text)


def _conditions(item: Manifest) -> Mapping[str, Manifest]:
    return {each["type"]: each for each in item.get("conditions") or ()}


def _is_about(told: Mapping[str, Any], parent: ParentRef, target: Target) -> bool:
    here = target.resource.namespace
    mine = (parent.name, parent.namespace or here, parent.section_name)
    return mine == (told.get("name"), told.get("namespace") or here, told.get("sectionName"))
