"""Secrets from a real OpenBao, whose users a real Valkey knows: they change and nobody notices."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from chiasm_cluster import state
from chiasm_cluster.images import load
from chiasm_cluster.settings import Settings
from chiasm_cluster.vault import image, site
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

from tests import demo_site
from tests.e2e.conftest import NAME, conditions, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.vault]

READER = "reader"
POLICY = """
path "secret/data/reader/*" { capabilities = ["read"] }
path "database/creds/store" { capabilities = ["read"] }
"""


def manifest(environment: str) -> dict[str, Any]:
    """The sidecar asks the server itself in `prod`; in `agent` the server's own agent does."""
    sources = [
        {"name": "tenants", "kv": {"path": "reader/tenants"}},
        {"name": "server", "kv": {"path": "reader/server"}},
        {"name": "store", "database": {"mount": "database", "role": "store"}},
    ]
    vault = {"address": site.ADDRESS, "auth": {"role": READER}}
    little = {"requests": {"cpu": "100m", "memory": "128Mi"}}
    return {
        "apiVersion": "chiasm.dev/v1alpha1",
        "kind": "MultimodalInference",
        "metadata": {"name": READER},
        "spec": {
            "model": {"source": {"builtin": "demo"}},
            "engine": {"kvCacheBytes": "32Mi"},
            "resources": {**little, "sidecar": little},
            "rollout": {"drainSeconds": 2},
            "tenants": {
                "keysSecret": {"source": "tenants"},
                "serverKeySecret": {"source": "server"},
            },
            "tiers": {
                "valkey": {
                    "host": site.VALKEY_HOST,
                    "usernameSecret": {"source": "store", "key": "username"},
                    "passwordSecret": {"source": "store", "key": "password"},
                }
            },
            "config": {
                "environment": environment,
                "environments": [
                    {"name": "prod", "vault": vault, "sources": sources},
                    {
                        "name": "agent",
                        "weight": 50,
                        "vault": {**vault, "delivery": "agent", "agentImage": image.IMAGE},
                        "sources": sources,
                    },
                ],
            },
        },
    }


class Reader:
    """The resource, and those around it."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._cluster = cluster
        self._manifest = folder / "reader.json"
        load.bring(state.required(NAME), image.make(Settings().cache_dir, print), print)
        self.vault = site.install(cluster.kubectl, self._apply)
        self.server = self.vault.server
        site.role(self.server, "store", "10m", "20m")
        self.server.admit(READER, READER, tour.NAMESPACE, POLICY)
        self.server.put("reader/server", **{"server-key": secrets.token_hex(32)})
        self.key = self.new_key()

    def _apply(self, text: str) -> None:
        self._manifest.write_text(text)
        self._cluster.kubectl("apply", "-f", str(self._manifest))

    def present(self, environment: str) -> None:
        """Apply the resource in an environment."""
        self._apply(json.dumps(manifest(environment)))

    def new_key(self, *kept: str) -> str:
        """Another API key beside those that are kept."""
        key = secrets.token_urlsafe(24)
        self.server.put("reader/tenants", shop="\n".join([*kept, key]))
        return key

    def status(self) -> dict[str, Any]:
        """Its status now."""
        words = self._cluster.kubectl("get", "mmi", READER, "-o", "json")
        found: dict[str, Any] = json.loads(words).get("status", {})
        return found

    def says(self, kind: str) -> str:
        """A condition: its status and its reason."""
        found = conditions(self._cluster, READER).get(kind, {})
        return f"{found.get('status')} {found.get('reason')}"

    def is_well(self) -> bool:
        """Whether its status says so of the spec as it is."""
        leases = self.says("SecretLeaseHealthy")
        return all(
            self.says(kind).startswith("True") for kind in ("Ready", "ConfigSynced")
        ) and leases in {"True LeasesRenewed", "Unknown LeasesHeldElsewhere"}

    def becomes_well(self, seconds: float = 120) -> None:
        """Wait until its status says so."""
        try:
            eventually(self.is_well, "the resource should be well", seconds)
        except AssertionError:
            raise AssertionError(f"the resource should be well: {self.status()}") from None

    def users(self) -> set[str]:
        """Users of Valkey that OpenBao has made and not ended."""
        client = redis.Redis(
            host=self.vault.valkey_address,
            password=self.vault.valkey_password,
            decode_responses=True,
        )
        try:
            return set(client.acl_users()) - {"default"}
        finally:
            client.close()

    def annotate(self, word: str) -> None:
        """Annotate it."""
        self._cluster.kubectl("annotate", "mmi", READER, "--overwrite", f"chiasm.dev/{word}")

    def ask(self, key: str) -> int:
        """The status of a short question."""
        body = {
            "model": READER,
            "max_tokens": 2,
            "messages": [{"role": "user", "content": f"What is it? {secrets.token_hex(40)}"}],
        }
        with self._cluster.endpoint(tour.NAMESPACE, READER, tour.API_PORT) as url:
            headers = {"authorization": f"Bearer {key}"}
            return httpx.post(
                f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60
            ).status_code


@pytest.fixture(scope="module")
def reader(
    demo_cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    """It runs, with what OpenBao gives it."""
    reader = Reader(demo_cluster, tmp_path_factory.mktemp("reader"))
    try:
        reader.present("prod")
        reader.becomes_well(300)
        yield reader
    finally:
        demo_cluster.kubectl("delete", "mmi", READER, "--wait=true", "--ignore-not-found")
        demo_cluster.kubectl("delete", "namespace", site.NAMESPACE, "--wait=true")


def lost(statuses: list[int]) -> list[int]:
    return [status for status in statuses if status != 200]


def test_another_api_key_is_taken_up_and_the_old_one_goes(reader: Reader) -> None:
    assert reader.ask("a-key-that-nobody-has-given") == 401
    old = reader.key
    with demo_site.asking(lambda: reader.ask(reader.key)) as statuses:
        new = reader.new_key(old)
        eventually(lambda: reader.ask(new) == 200, "the new key should be taken")
        reader.key = new
        reader.server.put("reader/tenants", shop=new)
        eventually(lambda: reader.ask(old) == 401, "the old key should be refused")
    assert len(statuses) > 5
    assert not lost(statuses)


def test_another_user_of_the_store_takes_the_place_of_the_old_one(reader: Reader) -> None:
    (before,) = reader.users()
    with demo_site.asking(lambda: reader.ask(reader.key)) as statuses:
        reader.annotate("reload-config=now")
        eventually(lambda: before not in reader.users(), "the old user should be gone")
        reader.becomes_well()
    assert len(reader.users()) == 1
    assert reader.status()["config"]["asked"] == "now"
    assert not lost(statuses)


def test_while_the_server_is_away_everything_goes_on_and_the_status_says_so(
    reader: Reader,
) -> None:
    users = reader.users()
    with demo_site.asking(lambda: reader.ask(reader.key)) as statuses:
        reader.server.seal()
        told = "False ConfigUnavailable"
        eventually(lambda: reader.says("ConfigSynced") == told, "the status should say so")
        assert "sealed" in str(reader.status()["conditions"])
        assert reader.says("Ready") == "True AllReplicasReady"
        reader.server.unseal()
        reader.becomes_well()
    assert reader.users() == users
    assert not lost(statuses)


def test_another_environment_stands_beside_with_its_share_and_takes_over(
    reader: Reader,
) -> None:
    (before,) = reader.users()
    with demo_site.asking(lambda: reader.ask(reader.key)) as statuses:
        reader.present("agent")

        def beside() -> bool:
            found = reader.status()
            weight = found.get("rollout", {}).get("weight")
            return weight == "50" and found["config"].get("stableEnvironment") == "prod"

        eventually(beside, "the environment's weight should be reached", 300)
        assert len(reader.users()) == 2, "the agent has a user of its own"
        reader.annotate("rollout-action=promote")

        def alone() -> bool:
            same = reader.status()["config"].get("stableEnvironment") is None
            return same and before not in reader.users()

        eventually(alone, "the former revision should go and end its lease", 300)
        reader.becomes_well()
    assert reader.status()["config"]["environment"] == "agent"
    assert not lost(statuses)
    new = reader.new_key(reader.key)
    eventually(lambda: reader.ask(new) == 200, "the agent should bring the new key", 400)
