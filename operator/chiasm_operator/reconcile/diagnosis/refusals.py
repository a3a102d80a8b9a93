"""What the API server says when it refuses a pod or a child, as a problem with a remedy.

The texts are those of Kubernetes' admission: quota, webhooks, policies, validation. What is not
known among them is passed on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from chiasm_contract.conditions import Reason

from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render.autoscaler import SCALED_OBJECT
from chiasm_operator.render.delivery import csi, external_secrets, vso
from chiasm_operator.render.route import ROUTE

_EXCEEDED = re.compile(r"exceeded quota: ([^,]+), (requested: .*)", re.DOTALL)
_FAILED_QUOTA = re.compile(r"failed quota: ([^:]+): (.*)", re.DOTALL)
_DENIED = re.compile(r'admission webhook "([^"]+)" denied the request(.*)', re.DOTALL)
_NOT_CALLED = re.compile(r'failed calling webhook "([^"]+)"(.*)', re.DOTALL)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '([^']+)'(.*)", re.DOTALL)
_NOT_FOUND = 404

# What is missing where a cluster knows no such kind. Pods serve without, and the condition of the
# route or of the autoscaler says it.
NOT_INSTALLED: Mapping[str, Problem] = {
    ROUTE: Problem(
        Reason.GATEWAY_API_NOT_INSTALLED,
        "spec.gateway needs the Gateway API, and the cluster knows no HTTPRoute "
        "(gateway.networking.k8s.io/v1); install its CRDs and a controller, or leave spec.gateway "
        "out.",
    ),
    SCALED_OBJECT: Problem(
        Reason.KEDA_NOT_INSTALLED,
        "spec.autoscaling.keda needs KEDA, and the cluster knows no ScaledObject "
        "(keda.sh/v1alpha1); install KEDA or use spec.autoscaling.hpa.",
    ),
}

# What is missing where a cluster knows no such kind and pods cannot start without it.
_DELIVERIES = (
    ("external-secrets", external_secrets.KINDS, "External Secrets (external-secrets.io)"),
    ("vso", vso.KINDS, "the Vault Secrets Operator (secrets.hashicorp.com)"),
    ("csi", csi.KINDS, "the Secrets Store CSI driver (secrets-store.csi.x-k8s.io)"),
)
_DELIVERY_NOT_INSTALLED: Mapping[str, Problem] = {
    kind: Problem(
        Reason.DELIVERY_NOT_INSTALLED,
        f"delivery: {delivery} of the environment in spec.config needs {project}, and the cluster "
        f"knows no {kind}; install it or choose another delivery.",
    )
    for delivery, kinds, project in _DELIVERIES
    for kind in kinds
}


def _sentence(text: str) -> str:
    return text.strip(" :.\n")


def _quota(text: str) -> Problem | None:
    if found := _EXCEEDED.search(text):
        return Problem(
            Reason.QUOTA_EXCEEDED,
            f"ResourceQuota {found[1]!r} has no room: {_sentence(found[2])}. Raise the quota, or "
            "ask for less in spec.replicas or spec.resources.",
        )
    if found := _FAILED_QUOTA.search(text):
        return Problem(
            Reason.QUOTA_EXCEEDED,
            f"ResourceQuota {found[1]!r} wants every container to say more: "
            f"{_sentence(found[2])}. Set it in spec.resources and spec.resources.sidecar.",
        )
    return None


def pods(text: str) -> Problem:
    """Why the Deployment cannot create pods."""
    if quota := _quota(text):
        return quota
    if found := _DENIED.search(text):
        return Problem(
            Reason.PODS_REFUSED_BY_WEBHOOK,
            f"Admission webhook {found[1]!r} refuses the pods: {_sentence(found[2])}. Give them "
            "what it asks for in spec.podTemplate, or let it pass this namespace.",
        )
    if found := _NOT_CALLED.search(text):
        return Problem(
            Reason.PODS_REFUSED_BY_WEBHOOK,
            f"No pod can be created while admission webhook {found[1]!r} does not answer: "
            f"{_sentence(found[2])}. Mend it or remove its configuration.",
        )
    if found := _POLICY.search(text):
        return Problem(
            Reason.PODS_REFUSED,
            f"ValidatingAdmissionPolicy {found[1]!r} refuses the pods: {_sentence(found[2])}. "
            "Give them what it asks for in spec.podTemplate.",
        )
    return Problem(Reason.PODS_REFUSED, f"Pods cannot be created: {text}")


def child(kind: str, name: str, status: int, text: str) -> Problem:
    """Why a child could not be applied."""
    if quota := _quota(text):
        return Problem(quota.reason, f"{kind} {name!r}: {quota.message}")
    if status == _NOT_FOUND and kind in NOT_INSTALLED:
        return NOT_INSTALLED[kind]
    if status == _NOT_FOUND and kind in _DELIVERY_NOT_INSTALLED:
        return _DELIVERY_NOT_INSTALLED[kind]
    if "field is immutable" in text:
        return Problem(
            Reason.IMMUTABLE_FIELD,
            f"{kind} {name!r} has a field that Kubernetes lets nobody change: {_sentence(text)}. "
            f"Delete it (kubectl delete {kind.lower()} {name}); it is made anew at once. What it "
            "owns goes with it.",
        )
    return Problem(Reason.CHILD_REFUSED, f"{kind} {name!r} was refused: {text}")
