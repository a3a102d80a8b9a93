"""`delivery: injector`: annotations for the webhook that puts the server's agent into pods.

Written with the prefix that HashiCorp's injector reads. OpenBao's reads it too, and writes it over
with its own. Both put an init container first and an agent beside the worker, each with a login of
its own: the lease of the first ends by its time, while pods are given that of the second.

Nothing is revoked on shutdown: that would be when a pod begins to end its answers, not when it has.
"""

from __future__ import annotations

import json
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.environments import Source, Vault

from chiasm_operator.render.configuration.resolved import api_path, by_delivery, rendered_path
from chiasm_operator.render.configuration.templates import FILE_MODE, STATIC_INTERVAL, template
from chiasm_operator.render.target import Target

PREFIX = "vault.hashicorp.com/"


def annotated(target: Target) -> dict[str, str]:
    """Annotations of the pod template; none with another delivery."""
    found = by_delivery(target, "injector")
    if found is None:
        return {}
    vault, sources = found
    written = _agent(vault)
    for source in sources:
        written |= _secret(source)
    return {f"{PREFIX}{name}": value for name, value in written.items()}


def _agent(vault: Vault) -> dict[str, str]:
    user = str(names.RUN_AS_ID)
    return {
        "agent-inject": "true",
        "agent-init-first": "true",
        "agent-pre-populate": "true",
        # Init containers get the files in any case; the worker must not.
        "agent-inject-containers": names.SIDECAR_CONTAINER,
        "agent-run-as-user": user,
        "agent-run-as-group": user,
        "agent-service-account-token-volume-name": "vault-token",
        "service": vault.address,
        "auth-type": "kubernetes",
        "auth-path": f"auth/{vault.auth.mount}",
        "role": vault.auth.role,
        "template-static-secret-render-interval": STATIC_INTERVAL,
        **({"namespace": vault.namespace} if vault.namespace else {}),
        **(_authority() if vault.ca_config_map else {}),
    }


def _authority() -> dict[str, str]:
    """The injector mounts an authority from a Secret only; a patch mounts our ConfigMap."""
    mount: dict[str, Any] = {
        "name": "vault-ca", "mountPath": names.VAULT_CA_DIR, "readOnly": True,
    }  # fmt: skip
    patch = json.dumps([{"op": "add", "path": "/volumeMounts/-", "value": mount}])
    return {
        "ca-cert": names.VAULT_CA_FILE,
        "agent-json-patch": patch,
        "agent-init-json-patch": patch,
    }


def _secret(source: Source) -> dict[str, str]:
    name = source.name
    return {
        f"agent-inject-secret-{name}": api_path(source),
        f"agent-inject-file-{name}": rendered_path(source, "injector").name,
        f"agent-inject-perms-{name}": FILE_MODE,
        f"agent-inject-template-{name}": template(source),
        f"error-on-missing-key-{name}": "true",
    }
