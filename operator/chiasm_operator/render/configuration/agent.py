"""`delivery: agent`: the server's own agent as a native sidecar, in front of ours.

One container logs in once. The sidecar starts behind its startup probe, so that all files are there
by then, and ends before it, so that leases are renewed while answers end. An agent that only runs
first, as another init container, would log in for itself: what it got is another lease than that
which is renewed later, and ends under those who use it (vault-k8s #125).
"""

from __future__ import annotations

import json
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.environments import Source, Vault

from chiasm_operator.render.configuration.resolved import by_delivery, rendered_path
from chiasm_operator.render.configuration.templates import FILE_MODE, STATIC_INTERVAL, template
from chiasm_operator.render.target import Target

CONTAINER = "agent"
CONFIG_KEY = "agent.json"
VOLUME = "agent-rendered"

_PROGRAMS = {"openbao": "bao", "vault": "vault"}
_NAMESPACE_VARIABLES = {"openbao": "BAO_NAMESPACE", "vault": "VAULT_NAMESPACE"}
# A server that is sealed may take this long before the agent is started anew.
_STARTUP_SECONDS = 600


def files(target: Target) -> dict[str, str]:
    """The agent's own configuration; none with another delivery."""
    found = by_delivery(target, "agent")
    if found is None:
        return {}
    return {CONFIG_KEY: json.dumps(_config(*found), indent=2, sort_keys=True) + "\n"}


def _config(vault: Vault, sources: tuple[Source, ...]) -> dict[str, Any]:
    method = {
        "type": "kubernetes",
        "mount_path": f"auth/{vault.auth.mount}",
        "config": {"role": vault.auth.role, "token_path": names.VAULT_TOKEN_FILE},
        **({"namespace": vault.namespace} if vault.namespace else {}),
    }
    authority = {"ca_cert": names.VAULT_CA_FILE} if vault.ca_config_map else {}
    return {
        "vault": {"address": vault.address, **authority},
        "auto_auth": {"method": [method]},
        "template_config": {
            "exit_on_retry_failure": False,
            "static_secret_render_interval": STATIC_INTERVAL,
        },
        "template": [
            {
                "contents": template(source),
                "destination": str(rendered_path(source, "agent")),
                "error_on_missing_key": True,
                "perms": FILE_MODE,
            }
            for source in sources
        ],
    }


def container(target: Target) -> list[dict[str, Any]]:
    """The container, to be started before the sidecar; none with another delivery."""
    found = by_delivery(target, "agent")
    if found is None:
        return []
    vault, sources = found
    namespace = {"name": _NAMESPACE_VARIABLES[vault.flavor], "value": vault.namespace}
    return [
        {
            "name": CONTAINER,
            "image": target.agent_image,
            "imagePullPolicy": target.images.pull_policy,
            "command": [
                _PROGRAMS[vault.flavor], "agent", f"-config={names.CONFIG_DIR}/{CONFIG_KEY}",
            ],
            **({"env": [namespace]} if vault.namespace else {}),
            "restartPolicy": "Always",
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            # What it prints of a missing file is the file's name, never what is in one.
            "startupProbe": {
                "exec": {
                    "command": ["ls", *(str(rendered_path(each, "agent")) for each in sources)]
                },
                "periodSeconds": 1,
                "timeoutSeconds": 5,
                "failureThreshold": _STARTUP_SECONDS,
            },
            "resources": {
                "requests": {"cpu": "20m", "memory": "64Mi"},
                "limits": {"memory": "256Mi"},
            },
            "volumeMounts": _mounts(vault),
        }
    ]  # fmt: skip


def _mounts(vault: Vault) -> list[dict[str, Any]]:
    return [
        {"name": "config", "mountPath": names.CONFIG_DIR, "readOnly": True},
        {"name": "vault-token", "mountPath": names.VAULT_TOKEN_DIR, "readOnly": True},
        *(
            [{"name": "vault-ca", "mountPath": names.VAULT_CA_DIR, "readOnly": True}]
            if vault.ca_config_map
            else []
        ),
        {"name": VOLUME, "mountPath": names.AGENT_RENDERED_DIR},
    ]
