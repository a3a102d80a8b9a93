"""Secrets that the controller of External Secrets brings from a real OpenBao."""

from __future__ import annotations

import json

import pytest
from chiasm_tour import tour

from tests.demo_site import RESOURCE, asking, eventually
from tests.external_secrets.conftest import PULLED_WITH, Site

pytestmark = pytest.mark.external_secrets

SOURCES = {"tenants", "server", "registry", "store"}


def lost(statuses: list[int]) -> list[int]:
    return [status for status in statuses if status != 200]


def test_every_object_is_taken_and_becomes_a_secret(reader: Site) -> None:
    made = reader.get("externalsecret", "-n", tour.NAMESPACE)["items"]
    assert {each["metadata"]["name"] for each in made} == {*map(reader.called, SOURCES)}
    for each in made:
        (ready,) = (it for it in each["status"]["conditions"] if it["type"] == "Ready")
        assert ready["status"] == "True", ready
    assert reader.is_true("Ready")
    assert reader.is_true("ConfigSynced")
    assert not reader.condition("SecretLeaseHealthy"), "no pod has a lease for itself"
    assert reader.ask(reader.key) == 200
    assert reader.ask("a-key-that-nobody-has-given") == 401


def test_what_stands_is_left_alone(reader: Site) -> None:
    """What the API server adds to an object is no reason to write it anew, again and again."""

    def seen() -> dict[str, int]:
        listed = reader.get("externalsecret,secretstore", "-n", tour.NAMESPACE)["items"]
        return {
            f"{each['kind']} {each['metadata']['name']}": each["metadata"]["generation"]
            for each in listed
        }

    assert set(seen().values()) == {1}


def test_nodes_pull_images_with_what_the_server_has(reader: Site) -> None:
    secret = reader.secret("registry")
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert json.loads(secret["data"][".dockerconfigjson"]) == PULLED_WITH
    pods = reader.pods()
    assert len(pods) == 2
    for pod in pods:
        assert pod["spec"]["imagePullSecrets"] == [{"name": reader.called("registry")}]
        mounted = {each.get("secret", {}).get("secretName") for each in pod["spec"]["volumes"]}
        assert reader.called("tenants") in mounted
        assert reader.called("registry") not in mounted
    listed = {each["name"] for each in reader.resource["status"]["config"]["sources"]}
    assert listed == SOURCES - {"registry"}


def test_a_changed_value_is_taken_up_and_no_request_is_lost(reader: Site) -> None:
    pods = {pod["metadata"]["name"] for pod in reader.pods()}
    old = reader.key
    with asking(lambda: reader.ask(reader.key)) as statuses:
        before = reader.version("tenants")
        new = reader.new_key(old)
        eventually(lambda: reader.version("tenants") not in (None, before), "pods should take it")
        assert {reader.ask(new) for _ in range(8)} == {200}
        reader.key = new
        reader.vault.server.put("reader/tenants", shop=new)
        eventually(lambda: reader.ask(old) == 401, "the old key should be refused")
        eventually(lambda: reader.is_true("ConfigSynced"), "both pods should refuse it")
    assert len(statuses) > 5
    assert not lost(statuses)
    assert {pod["metadata"]["name"] for pod in reader.pods()} == pods, "none was replaced"


def test_another_user_of_the_store_is_taken_up_and_no_request_is_lost(reader: Site) -> None:
    """By the clock that is after 15 minutes; an annotation has it now, as that project says."""
    before, version = reader.secret("store")["data"], reader.version("store")
    assert set(before) == {"username", "password"}
    eventually(
        lambda: reader.users_of_connections() == {before["username"]},
        "pods should use the user of the Secret",
    )
    with asking(lambda: reader.ask(reader.key)) as statuses:
        reader.cluster.kubectl(
            "annotate", "externalsecret", reader.called("store"), "force-sync=now", "--overwrite"
        )
        eventually(lambda: reader.version("store") not in (None, version), "pods should take it")
        after = reader.secret("store")["data"]
        assert after["username"] != before["username"]
        eventually(
            lambda: reader.users_of_connections() == {after["username"]},
            "the former user's connections should end",
        )
    assert len(statuses) > 5
    assert not lost(statuses)
    assert reader.is_true("ConfigSynced")


def test_secrets_go_with_the_resource(reader: Site) -> None:
    called = {*map(reader.called, SOURCES)}

    def left() -> set[str]:
        found = reader.get("secret,externalsecret,secretstore", "-n", tour.NAMESPACE)["items"]
        return {each["metadata"]["name"] for each in found} & called

    assert left() == called
    reader.cluster.kubectl("delete", "mmi", RESOURCE, "-n", tour.NAMESPACE, "--wait=true")
    eventually(lambda: not left(), "objects and Secrets should be gone")
