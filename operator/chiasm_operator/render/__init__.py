"""Manifests of a resource's children: one module per kind, pure functions of a `Target`.

Must not know: the observed state, clocks, the environment, Kubernetes clients. A manifest holds
exactly the fields that the operator owns under server-side apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chiasm_contract.api.v1alpha1 import Spec

from chiasm_operator.render import (
    autoscaler,
    configmap,
    delivery,
    deployment,
    disruption_budget,
    network_policy,
    retired,
    revision,
    route,
    service,
    service_account,
    traffic,
)
from chiasm_operator.render.configuration import pod as configured
from chiasm_operator.render.pod import SecretUse, tenants, tiers
from chiasm_operator.render.revision import Record
from chiasm_operator.render.target import Target
from chiasm_operator.resource import Manifest

__all__ = [
    "Record",
    "SecretUse",
    "Target",
    "children",
    "of_revision",
    "scaling",
    "secret_uses",
    "shared",
]


def shared(target: Target, specs: Sequence[Spec]) -> tuple[Manifest, ...]:
    """What all revisions share but the Service for clients and `scaling`, in order of applying.

    `specs` are those of all revisions that stand: what pods reach is what any of them needs.
    """
    budget = disruption_budget.render(target)
    ended = retired.render(target)
    peers = service.render_peers(target, specs)
    return (
        service_account.render(target),
        *([ended] if ended else []),
        network_policy.render(target, specs),
        *([budget] if budget else []),
        *([peers] if peers else []),
    )


def scaling(target: Target) -> tuple[Manifest, ...]:
    """The autoscaler, if one is asked for; last, for the cluster may not know its kind."""
    scaler = autoscaler.render(target)
    return (scaler,) if scaler else ()


def of_revision(
    target: Target,
    record: Record,
    number: int,
    replicas: int,
    restarts: Mapping[str, str] | None = None,
) -> tuple[Manifest, ...]:
    """What one revision has for itself, in the order of applying."""
    return (
        revision.render(target, record, number),
        configmap.render(target, record.revision, record.files),
        *delivery.render(target, record.revision, record.objects),
        service.render_revision(target, record.revision),
        deployment.render(target, record, replicas, restarts or {}),
    )


def children(target: Target) -> tuple[Manifest, ...]:
    """Every child of a resource whose spec never changed, but the ConfigMap of the traffic plan.

    Raises: InvalidSpec when the spec holds a value that no part would accept.
    """
    record = revision.record_of(target)
    routed = route.render(target, traffic.whole(target))
    return (
        *shared(target, (target.spec,)),
        *of_revision(target, record, 1, target.spec.replicas),
        *([routed] if routed else []),
        service.render(target, target.revision),
        *scaling(target),
    )


def secret_uses(target: Target) -> tuple[SecretUse, ...]:
    """Every Secret that a pod mounts."""
    return (
        *tenants.secret_uses(target),
        *tiers.secret_uses(target),
        *configured.secret_uses(target),
    )
