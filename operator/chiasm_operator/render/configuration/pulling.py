"""Credentials with which nodes pull images, where a source of the environment brings them.

A kubelet reads a Secret, of one type and each time it pulls; so only a source that is one, or is
made one, will do, and pods have nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chiasm_contract.api.environments import Environment, Source
from chiasm_contract.api.pod_template import ImagePullSecret
from chiasm_contract.configuration import Delivery

from chiasm_operator.render.configuration.references import pulling
from chiasm_operator.render.delivery.naming import name
from chiasm_operator.render.target import Target

_TYPE, _ENTRY = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"
_MAKES_SECRETS: tuple[Delivery, ...] = ("external-secrets", "vso")


def secrets(target: Target) -> list[dict[str, str]]:
    """`imagePullSecrets` of the pod."""
    chosen = target.spec.pod_template.image_pull_secrets
    return [{"name": _secret(target, each)} for each in chosen]


def _secret(target: Target, origin: ImagePullSecret) -> str:
    if origin.name is not None:
        return origin.name
    source = target.environment.source(origin.source or "") if target.environment else None
    if source is None:
        raise ValueError(f"there is no source {origin.source!r}; this is a bug, for it is a fault")
    return source.secret.name if source.secret else name(target, source)


def secret_type(target: Target, source: Source) -> Mapping[str, str]:
    """`type` of the Secret that is made of a source; nothing where any will do."""
    return {"type": _TYPE} if source.name in pulling(target.spec) else {}


def fault(environment: Environment, source: Source) -> str | None:
    """Why nodes cannot pull images by a source."""
    remedy = "take a secret, or a kv secret with delivery external-secrets or vso."
    if source.config_map:
        return f"{source.name!r} is a configMap, and a kubelet reads Secrets only; {remedy}"
    if source.leased:
        return (
            f"{source.name!r} makes credentials that have no entry {_ENTRY}, which is what a "
            f"kubelet reads; {remedy}"
        )
    delivery = environment.vault.delivery if environment.vault else None
    if source.kv and delivery not in _MAKES_SECRETS:
        return (
            f"{source.name!r} becomes no Secret with delivery: {delivery}, and a kubelet reads "
            f"Secrets only; {remedy}"
        )
    return None


def idle(path: str, source: Source) -> Iterator[tuple[str, str]]:
    """What has no effect where only nodes read a source."""
    if source.on_change == "restart":
        yield (
            f"{path}.onChange",
            "nothing is restarted for credentials that only nodes read, each time they pull; "
            "leave it out.",
        )
    if source.keys:
        yield f"{path}.keys", "no pod has an entry of what only nodes read; leave keys out."
