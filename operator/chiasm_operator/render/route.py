"""The HTTPRoute: how Gateways reach the resource, as `spec.gateway` asks.

With `split: sidecars` it points at the Service for clients and never changes; sidecars divide. With
`split: gateway` its weights are those of the plan, and a header tells the sidecar that a gateway
chose it. A client's own headers of our names are taken out or written over. The annotation names
the plan that the route is made from.

Proxies take a route and what it points at one after the other, and name the latter by the place of
a rule and, where backends have filters of their own, of a backend (Envoy Gateway 1.9.1,
internal/ir/xds.go, NeedsClusterPerSetting): in between a request finds nothing and gets 500. So
what carries the weights is always the first rule, and its filter is the rule's own.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names
from chiasm_contract.traffic import WHOLE, Override, TrafficPlan

from chiasm_operator.render.target import Target

ROUTE = "HTTPRoute"

# The sidecar itself gives a request up, and says why; a gateway that is faster would cut answers.
_GRACE_SECONDS = 5


def render(target: Target, plan: TrafficPlan) -> dict[str, Any] | None:
    """The route; None when no Gateway is named."""
    gateway = target.spec.gateway
    if gateway is None:
        return None
    by_weights = gateway.split == "gateway"
    epoch = {names.ANNOTATION_TRAFFIC_EPOCH: str(plan.epoch)}
    parents = [
        parent.model_dump(mode="json", by_alias=True, exclude_none=True)
        for parent in gateway.parent_refs
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": ROUTE,
        "metadata": target.metadata(annotations=epoch if by_weights else None),
        "spec": {
            "parentRefs": parents,
            **({"hostnames": list(gateway.hostnames)} if gateway.hostnames else {}),
            "rules": _by_weights(target, plan) if by_weights else [_whole(target)],
        },
    }


def _whole(target: Target) -> dict[str, Any]:
    """Everything to the Service for clients."""
    ours = {"remove": [names.REVISION_HEADER, names.ROUTE_HEADER]}
    return {
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": ours}],
        "backendRefs": [{"name": target.name, "port": names.API_PORT}],
        **_timeouts(target),
    }


def _by_weights(target: Target, plan: TrafficPlan) -> list[dict[str, Any]]:
    """By weight, then what the client chooses: a match of a header wins over none, wherever."""
    stable, canary = plan.stable.revision, plan.canary.revision if plan.canary else None
    if canary is None:
        return [_divided(target, _backend(target, stable))]
    shares = {stable: WHOLE - plan.share, canary: plan.share}
    by_weight = _divided(target, *(_backend(target, *share) for share in shares.items()))
    chosen = [
        {
            "matches": [{"headers": [{"name": plan.override.header, "value": value}]}],
            **_divided(target, _backend(target, revision)),
        }
        for value, revision in _values(plan.override, stable, canary).items()
    ]
    return [by_weight, *chosen]


def _divided(target: Target, *backends: dict[str, Any]) -> dict[str, Any]:
    """A rule that tells the sidecars that the choice is made."""
    told = {
        "set": [{"name": names.ROUTE_HEADER, "value": names.ROUTED_BY_GATEWAY}],
        "remove": [names.REVISION_HEADER],
    }
    return {
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": told}],
        "backendRefs": list(backends),
        **_timeouts(target),
    }


def _values(override: Override, stable: str, canary: str) -> dict[str, str]:
    """Value of the header -> whom it means."""
    if override.header is None:
        return {}
    if override.header_value is not None:
        return {override.header_value: canary}
    return {"always": canary, "never": stable}


def _backend(target: Target, revision: str, weight: int | None = None) -> dict[str, Any]:
    return {
        "name": target.revision_name(revision),
        "port": names.API_PORT,
        **({} if weight is None else {"weight": weight}),
    }


def _timeouts(target: Target) -> dict[str, Any]:
    seconds = target.spec.config.request_timeout_seconds + _GRACE_SECONDS
    return {"timeouts": {"request": f"{seconds}s"}}
