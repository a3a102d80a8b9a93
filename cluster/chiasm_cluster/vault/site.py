"""Puts OpenBao and Valkey into a local cluster, so that one makes the other's users."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chiasm_cluster.vault.image import IMAGE
from chiasm_cluster.vault.server import Server

NAMESPACE = "openbao"
ADDRESS = f"http://openbao.{NAMESPACE}.svc:8200"
VALKEY_HOST = f"valkey.{NAMESPACE}.svc"
_MANIFESTS = Path(__file__).with_name("manifests.yaml")
# Of a user that may use records and run the tier's scripts, and nothing of the server itself.
VALKEY_USER = ["~chiasm:*", "&*", "+@all", "-@admin", "-@dangerous"]


@dataclass(frozen=True)
class VaultSite:
    """What stands there: the server, and the administrator's password of Valkey."""

    server: Server
    valkey_password: str
    valkey_address: str


def install(kubectl: Callable[..., str], apply: Callable[[str], None]) -> VaultSite:
    """Install both and join them; `apply` applies manifests, `kubectl` answers with its output.

    The image must be on the nodes. OpenBao then has kv at `secret`, and the database `valkey`.
    """
    password = secrets.token_urlsafe(24)
    apply(_MANIFESTS.read_text().replace("IMAGE", IMAGE))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "valkey-admin", "namespace": NAMESPACE},
        "stringData": {"password": password},
    }
    apply(json.dumps(secret))
    for name in ("openbao", "valkey"):
        kubectl("rollout", "status", f"deployment/{name}", "-n", NAMESPACE, "--timeout=180s")
    server = Server(f"http://{_address(kubectl, 'openbao')}:8200")
    server.begin()
    server.know_cluster()
    server.enable("kv", "secret", options={"version": "2"})
    server.enable("database", "database")
    server.write(
        "database/config/valkey",
        plugin_name="valkey-database-plugin",
        host=VALKEY_HOST,
        port=6379,
        username="default",
        password=password,
        allowed_roles=["*"],
    )
    return VaultSite(server, password, _address(kubectl, "valkey"))


def role(server: Server, name: str, default_ttl: str, max_ttl: str) -> None:
    """A role of the database whose users may keep blocks in Valkey."""
    server.write(
        f"database/roles/{name}",
        db_name="valkey",
        creation_statements=json.dumps(VALKEY_USER),
        default_ttl=default_ttl,
        max_ttl=max_ttl,
    )


def _address(kubectl: Callable[..., str], service: str) -> str:
    found = json.loads(kubectl("get", "service", service, "-n", NAMESPACE, "-o", "json"))
    address: str = found["spec"]["clusterIP"]
    return address
