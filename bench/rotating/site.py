"""A cluster with OpenBao, Valkey, the chart, and a resource that uses both."""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import Any

from chiasm_cluster import state
from chiasm_cluster.images import load
from chiasm_cluster.settings import Settings
from chiasm_cluster.vault import image, site
from chiasm_contract import names
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

NAME = "reader"
POLICY = """
path "secret/data/reader/*" { capabilities = ["read"] }
path "database/creds/store" { capabilities = ["read"] }
"""


def new_key() -> str:
    """An API key."""
    return secrets.token_urlsafe(24)


@dataclass
class Stand:
    """What was brought up."""

    cluster: LocalCluster
    vault: site.VaultSite
    key: str = field(default_factory=new_key)

    def apply(self, manifest: dict[str, Any]) -> None:
        """Apply one object."""
        apply(self.cluster, json.dumps(manifest))

    def admit(self, policy: str = POLICY) -> None:
        """What the resource's pods may do."""
        self.vault.server.admit(NAME, NAME, tour.NAMESPACE, policy)

    def put_tenants(self, *keys: str) -> int:
        """The tenant's API keys; the version that they are."""
        return self.vault.server.put("reader/tenants", shop="\n".join(keys))

    def put_secret(self, name: str, **entries: str) -> None:
        """A Secret of Kubernetes."""
        self.apply({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries,
        })  # fmt: skip

    def put_settings(self, level: str) -> None:
        """A ConfigMap of settings."""
        self.apply({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
            "data": {"level": level},
        })  # fmt: skip

    def kill_vault(self) -> None:
        """Its process ends; the container comes again, with its data, sealed."""
        self.signal_vault("KILL")

    def signal_vault(self, name: str) -> None:
        """Send a signal to the server's process."""
        found = subprocess.run(
            ["pgrep", "-f", "^bao server -config=/etc/openbao/config.json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        for pid in found.stdout.split():
            subprocess.run(["kill", f"-{name}", pid], check=True)


def manifest(delivery: str) -> dict[str, Any]:
    """The resource."""
    little = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    sources = [
        {"name": "tenants", "kv": {"path": "reader/tenants"}},
        {"name": "store", "database": {"mount": "database", "role": "store"}},
        {"name": "peers", "secret": {"name": "peers"}},
        {
            "name": "settings",
            "configMap": {"name": "settings"},
            "keys": [{"key": "level", "env": "CHIASM_LOG_LEVEL", "onChange": "restart"}],
        },
    ]
    vault = {"address": site.ADDRESS, "auth": {"role": NAME}, "delivery": delivery}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": NAME},
        "spec": {
            "model": {"source": {"builtin": "demo"}},
            "replicas": 2,
            "engine": {"kvCacheBytes": "32Mi"},
            "resources": {**little, "sidecar": little},
            "rollout": {"drainSeconds": 3},
            "tenants": {
                "keysSecret": {"source": "tenants"},
                "serverKeySecret": {"name": "server-key"},
            },
            "tiers": {
                "host": {"maxBytes": "16Mi"},
                "peers": {"secret": {"source": "peers", "key": "secret"}},
                "valkey": {
                    "host": site.VALKEY_HOST,
                    "usernameSecret": {"source": "store", "key": "username"},
                    "passwordSecret": {"source": "store", "key": "password"},
                },
            },
            "config": {
                "environment": "prod",
                "environments": [{"name": "prod", "vault": vault, "sources": sources}],
            },
        },
    }


def apply(cluster: LocalCluster, text: str) -> None:
    """Apply manifests."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        cluster.kubectl("apply", "-f", file.name)


def bring_up(name: str) -> Stand:
    """Everything but the resource."""
    cluster = LocalCluster(name)
    cluster.up()
    cluster.load()
    made = image.make(Settings().cache_dir, print)
    load.bring(state.required(name), made, print)
    vault = site.install(cluster.kubectl, lambda text: apply(cluster, text))
    site.role(vault.server, "store", "60s", "120s")
    tour.install(cluster)
    stand = Stand(cluster, vault)
    stand.admit()
    stand.put_tenants(stand.key)
    stand.put_secret("server-key", **{"server-key": secrets.token_hex(32)})
    stand.put_secret("peers", secret=secrets.token_hex(32))
    stand.put_settings("INFO")
    return stand
