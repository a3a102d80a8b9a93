"""What the pod has for its sources: volumes, where they are mounted, and the sidecar's variables.

All of it is the sidecar's, or an agent's beside it; the worker mounts none of it.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names
from chiasm_contract.api.environments import Source

from chiasm_operator.render import delivery
from chiasm_operator.render.configuration import agent, digest
from chiasm_operator.render.configuration.references import in_pods
from chiasm_operator.render.configuration.resolved import by_delivery, mounted_path
from chiasm_operator.render.delivery import csi
from chiasm_operator.render.pod.secret_use import SecretUse
from chiasm_operator.render.target import Target

TOKEN_VOLUME, CA_VOLUME, _CURRENT, _DIGEST = "vault-token", "vault-ca", "config-current", "digest"
# Both generations of all sources; the server's limits for one entry are far below it.
_MEMORY = {"emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
_TOKEN_SECONDS = 600
# Readable by the containers' group, which is the pod's fsGroup.
_MODE = 0o440


def has_sources(target: Target) -> bool:
    """Whether its pods have any."""
    return bool(in_pods(target.spec))


def labels(target: Target) -> dict[str, str]:
    """A label of the pods, in no selector."""
    environment = target.environment
    return {names.LABEL_ENVIRONMENT: environment.name} if environment else {}


def volumes(target: Target) -> list[dict[str, Any]]:
    """The pod's volumes."""
    if not has_sources(target):
        return []
    key = {"key": names.CONFIG_DIGEST_KEY, "path": names.CONFIG_DIGEST_KEY}
    secret = {
        "secretName": digest.name(target),
        "optional": True,
        "items": [key],
        "defaultMode": _MODE,
    }
    return [
        {"name": _CURRENT, **_MEMORY},
        {"name": _DIGEST, "secret": secret},
        *(
            {"name": _volume(source), **volume}
            for source in in_pods(target.spec)
            if (volume := _mounted(target, source))
        ),
        *_for_the_server(target),
    ]


def _volume(source: Source) -> str:
    return f"source-{source.name}"


def _mounted(target: Target, source: Source) -> dict[str, Any] | None:
    """A volume of entries; None when the source is not mounted."""
    if source.config_map:
        return {"configMap": {"name": source.config_map.name, "defaultMode": _MODE}}
    if source.secret:
        return {"secret": {"secretName": source.secret.name, "defaultMode": _MODE}}
    if by_delivery(target, "external-secrets", "vso"):
        name = delivery.name(target, source)
        return {"secret": {"secretName": name, "defaultMode": _MODE}}
    if by_delivery(target, "csi"):
        return csi.volume(target, source)
    return None


def _for_the_server(target: Target) -> list[dict[str, Any]]:
    """What a login needs, and where the agent puts its files."""
    found = by_delivery(target, "direct", "agent", "injector")
    if found is None:
        return []
    vault, _ = found
    token = {
        "audience": vault.auth.audience,
        "expirationSeconds": _TOKEN_SECONDS,
        "path": "token",
    }
    volumes: list[dict[str, Any]] = [
        {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
    ]
    if vault.ca_config_map:
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        config = {"name": vault.ca_config_map.name, "items": items}
        volumes.append({"name": CA_VOLUME, "configMap": config})
    if vault.delivery == "agent":
        volumes.append({"name": agent.VOLUME, **_MEMORY})
    return volumes


def mounts(target: Target) -> list[dict[str, Any]]:
    """Where the sidecar finds them. No subPath: such mounts never change."""
    if not has_sources(target):
        return []
    read = {
        _DIGEST: names.CONFIG_DIGEST_DIR,
        **{
            _volume(source): str(mounted_path(source))
            for source in in_pods(target.spec)
            if _mounted(target, source)
        },
    }
    if by_delivery(target, "agent"):
        read[agent.VOLUME] = names.AGENT_RENDERED_DIR
    if direct := by_delivery(target, "direct"):
        read[TOKEN_VOLUME] = names.VAULT_TOKEN_DIR
        if direct[0].ca_config_map:
            read[CA_VOLUME] = names.VAULT_CA_DIR
    return [
        {"name": _CURRENT, "mountPath": names.CONFIG_CURRENT_DIR},
        *({"name": name, "mountPath": path, "readOnly": True} for name, path in read.items()),
    ]


def variables(target: Target) -> dict[str, dict[str, Any]]:
    """The sidecar's settings that come from a source, by name."""
    environment = target.environment
    if environment is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for source in environment.sources:
        origin = source.config_map or source.secret
        kind = "configMapKeyRef" if source.config_map else "secretKeyRef"
        for key in source.keys:
            if key.env is not None and origin is not None:
                reference = {kind: {"name": origin.name, "key": key.key}}
                found[key.env] = {"name": key.env, "valueFrom": reference}
    return found


def secret_uses(target: Target) -> tuple[SecretUse, ...]:
    """The Secrets that people make, and the fields that name them."""
    environment = target.environment
    return tuple(
        SecretUse(
            _volume(source),
            f"spec.config.environments[{environment.name}].sources[{source.name}].secret",
            source.secret.name,
        )
        for source in in_pods(target.spec)
        if environment and source.secret
    )
