"""One cluster with the controller of External Secrets, OpenBao, Valkey and the demo model."""

from __future__ import annotations

import base64
import json
import secrets
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from chiasm_cluster.build import external_secrets
from chiasm_cluster.images import program
from chiasm_cluster.images.archive import Image
from chiasm_cluster.settings import Settings
from chiasm_cluster.vault import image, site
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

from tests import demo_site
from tests.demo_site import RESOURCE

NAME = "external-secrets"
REPOSITORY = "docker.io/chiasm/external-secrets"
PULLED_WITH = {"auths": {"registry.example.com": {"auth": "bm9ib2R5OndvcmQ="}}}
POLICY = """
path "secret/data/reader/*" { capabilities = ["read"] }
path "database/creds/store" { capabilities = ["read"] }
"""


class Site(demo_site.Site):
    """The resource, and the server that its secrets come from."""

    def __init__(self, cluster: LocalCluster, vault: site.VaultSite) -> None:
        super().__init__(cluster)
        self.vault = vault
        site.role(vault.server, "store", "1h", "2h")
        # A lease ends with the token of who asked for it, and nobody renews the controller's.
        vault.server.admit(RESOURCE, RESOURCE, tour.NAMESPACE, POLICY, token_ttl="2h")
        vault.server.put("reader/server", **{"server-key": secrets.token_hex(32)})
        vault.server.put("reader/registry", **{".dockerconfigjson": json.dumps(PULLED_WITH)})
        self.key = self.new_key()
        self.client = httpx.Client(timeout=120)

    def begin(self) -> None:
        """Apply the resource, whose secrets External Secrets brings, and wait for it."""
        little = {"requests": {"cpu": "100m", "memory": "128Mi"}}
        server = {"address": site.ADDRESS, "auth": {"role": RESOURCE}}
        sources = [
            {"name": "tenants", "kv": {"path": "reader/tenants"}},
            {"name": "server", "kv": {"path": "reader/server"}},
            {"name": "registry", "kv": {"path": "reader/registry"}},
            {"name": "store", "database": {"mount": "database", "role": "store"}},
        ]
        chosen = {
            "name": "prod",
            "vault": {**server, "delivery": "external-secrets"},
            "sources": sources,
        }
        self.apply(
            engine={"kvCacheBytes": "32Mi"},
            resources={**little, "sidecar": little},
            rollout={"drainSeconds": 2},
            tenants={
                "keysSecret": {"source": "tenants"},
                "serverKeySecret": {"source": "server"},
            },
            tiers={
                "valkey": {
                    "host": site.VALKEY_HOST,
                    "usernameSecret": {"source": "store", "key": "username"},
                    "passwordSecret": {"source": "store", "key": "password"},
                }
            },
            podTemplate={"imagePullSecrets": [{"source": "registry"}]},
            config={"environment": "prod", "environments": [chosen]},
        )
        self.until_ready()

    def new_key(self, *kept: str) -> str:
        """Another API key beside those that are kept."""
        key = secrets.token_urlsafe(24)
        self.vault.server.put("reader/tenants", shop="\n".join([*kept, key]))
        return key

    @cached_property
    def _url(self) -> str:
        service = self.get("service", RESOURCE, "-n", tour.NAMESPACE)
        return f"http://{service['spec']['clusterIP']}:{tour.API_PORT}/v1/chat/completions"

    def ask(self, key: str) -> int:
        """The status of a short question."""
        content = f"What is it? {secrets.token_hex(40)}"
        body: dict[str, Any] = {
            "model": RESOURCE,
            "max_tokens": 2,
            "messages": [{"role": "user", "content": content}],
        }
        headers = {"authorization": f"Bearer {key}"}
        return self.client.post(self._url, json=body, headers=headers).status_code

    def called(self, source: str) -> str:
        """The name of the objects of a source, and of its Secret."""
        return f"{RESOURCE}-{self.resource['status']['revision']}-{source}"

    def secret(self, source: str) -> dict[str, Any]:
        """The Secret that was made of a source, its entries decoded."""
        found = self.get("secret", self.called(source), "-n", tour.NAMESPACE)
        entries = found.get("data", {}).items()
        return {**found, "data": {key: base64.b64decode(word).decode() for key, word in entries}}

    def version(self, source: str) -> str | None:
        """What every pod uses of a source; None while they are about another."""
        listed = self.resource["status"]["config"]["sources"]
        (found,) = (each for each in listed if each["name"] == source)
        whole = found["pods"] == "2/2" and not found.get("rotatingTo")
        return found.get("version") if whole else None

    def users_of_connections(self) -> set[str]:
        """Users of Valkey who are connected now, but for this look at them."""
        client = redis.Redis(host=self.vault.valkey_address, password=self.vault.valkey_password)
        try:
            return {each["user"] for each in client.client_list()} - {"default"}
        finally:
            client.close()


@pytest.fixture(scope="module")
def reader() -> Iterator[Site]:
    """It runs, with what External Secrets brings it; the cluster is removed at the end."""
    with demo_site.running(NAME, _images, _install) as cluster:
        vault = site.install(cluster.kubectl, lambda text: _apply(cluster, text))
        reader = Site(cluster, vault)
        with reader.client:
            reader.begin()
            yield reader


def _apply(cluster: LocalCluster, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        cluster.kubectl("apply", "-f", file.name)


def _images() -> list[Image]:
    cache_dir, controller = Settings().cache_dir, external_secrets.PROGRAM
    built = controller.ensure(cache_dir, print)
    named = f"{REPOSITORY}:{controller.version}"
    return [program.image(named, built), image.make(cache_dir, print)]


def _install(cluster: LocalCluster) -> None:
    """Install the project's own chart, without the webhook that checks what people write."""
    for path in external_secrets.definitions():
        cluster.kubectl("apply", "--server-side", "-f", str(path))
    values = {
        "image.repository": REPOSITORY,
        "image.tag": external_secrets.PROGRAM.version,
        "image.pullPolicy": "Never",
        "webhook.create": "false",
        "certController.create": "false",
        "resources.requests.cpu": "50m",
    }
    with tempfile.TemporaryDirectory() as folder:
        cluster.helm(
            "upgrade", "--install", "external-secrets", str(external_secrets.chart(Path(folder))),
            "-n", "external-secrets", "--create-namespace", "--wait", "--timeout", "5m",
            *(word for key, value in values.items() for word in ("--set", f"{key}={value}")),
        )  # fmt: skip
