"""Manifests of a resource's children: one module per kind, pure functions of a `Target`.

Must not know: the observed state, clocks, the environment, Kubernetes clients. A manifest holds
exactly the fields that the operator owns under server-side apply.
"""

from __future__ import annotations

from chiasm_operator.render import (
    autoscaler,
    configmap,
    deployment,
    disruption_budget,
    network_policy,
    retired,
    service,
    service_account,
    tenants,
    tiers,
)
from chiasm_operator.render.secret_use import SecretUse
from chiasm_operator.render.target import Target
from chiasm_operator.resource import Manifest

__all__ = ["SecretUse", "Target", "children", "secret_uses"]


def children(target: Target) -> tuple[Manifest, ...]:
    """Every child that should exist, in the order in which they are applied."""
    budget = disruption_budget.render(target)
    scaler = autoscaler.render(target)
    ended = retired.render(target)
    peers = service.render_peers(target)
    return (
        service_account.render(target),
        configmap.render(target),
        *([ended] if ended else []),
        network_policy.render(target),
        *([budget] if budget else []),
        service.render(target),
        *([peers] if peers else []),
        deployment.render(target),
        *([scaler] if scaler else []),
    )


def secret_uses(target: Target) -> tuple[SecretUse, ...]:
    """Every Secret that a pod mounts."""
    return tenants.secret_uses(target) + tiers.secret_uses(target)
