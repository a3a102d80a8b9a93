"""What cannot be served of an environment is said when it is stored, and before it is rendered."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_operator.admission.review import review
from chiasm_operator.render import Target
from chiasm_operator.render.revision import record_of
from chiasm_operator.resource import InvalidSpec

Example = Callable[[str], dict[str, Any]]
Change = Callable[[dict[str, Any], dict[str, Any]], None]


def at(spec: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(e for e in spec["config"]["environments"] if e["name"] == name)
    return found


def source(environment: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in environment["sources"] if s["name"] == name)
    return found


def absent(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    chosen["sources"].remove(source(chosen, "authority"))


def no_environment(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    spec["config"] = {}


def unused(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    chosen["sources"].append({"name": "more", "kv": {"path": "more"}})


def twice(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    key = copy.deepcopy(source(chosen, "settings")["keys"][0])
    source(chosen, "authority")["keys"] = [key]


def no_vault(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    chosen["sources"] = copy.deepcopy(at(spec, "staging")["sources"])


def vso(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    chosen["vault"]["delivery"] = "vso"


def unnamed(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    chosen["vault"]["delivery"] = "csi"
    del chosen["vault"]["caConfigMap"]


def leased(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    spec["tiers"]["peers"]["secret"] = {"source": "store", "key": "password"}


def torn(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    spec["tiers"]["valkey"]["usernameSecret"] = {"source": "shared", "key": "user"}


def pulled_from(kind: str, delivery: str | None = None) -> Change:
    def change(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
        origins = {
            "configMap": {"name": "registry"},
            "kv": {"path": "registry"},
            "database": {"mount": "database", "role": "registry"},
        }
        registry = source(chosen, "registry")
        del registry["secret"]
        registry[kind] = origins[kind]
        chosen["vault"]["delivery"] = delivery or "direct"

    change.__name__ = f"pulled_from_{kind}_{delivery}"
    return change


def restarted(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    source(chosen, "registry")["onChange"] = "restart"


def by_entry(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    source(chosen, "registry")["keys"] = [{"key": ".dockerconfigjson", "onChange": "ignore"}]


def lost(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    chosen["sources"].remove(source(chosen, "registry"))


PULL = "spec.podTemplate.imagePullSecrets[0].source"


def ignored(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    source(chosen, "store")["onChange"] = "ignore"


def in_part(spec: dict[str, Any], chosen: dict[str, Any]) -> None:
    source(chosen, "store")["keys"] = [{"key": "username", "onChange": "restart"}]


ENVIRONMENT = "spec.config.environments[prod-canary]"
FAULTS: dict[Change, tuple[str, str]] = {
    absent: (
        "spec.tiers.valkey.caSecret.source",
        "environment 'prod-canary' has no source 'authority'; there are: settings, store,",
    ),
    no_environment: ("spec.tiers.peers.secret.source", "'shared' is a source of no environment"),
    unused: (f"{ENVIRONMENT}.sources[more]", "nothing uses it"),
    twice: (
        f"{ENVIRONMENT}.sources[authority].keys[worker-retries].env",
        f"CHIASM_WORKER_RETRIES is set by {ENVIRONMENT}.sources[settings].keys[worker-retries].env",
    ),
    no_vault: (f"{ENVIRONMENT}.vault", "no source names a secret of it"),
    vso: (f"{ENVIRONMENT}.vault.caConfigMap", "is of no use with delivery: vso"),
    unnamed: ("spec.tenants.keysSecret.source", "csi mounts only entries that are named"),
    leased: ("spec.tiers.peers.secret.source", "'store' gives each pod credentials of its own"),
    pulled_from("configMap"): (PULL, "'registry' is a configMap, and a kubelet reads Secrets only"),
    pulled_from("database", "external-secrets"): (PULL, "no entry .dockerconfigjson"),
    **{
        pulled_from("kv", delivery): (PULL, f"becomes no Secret with delivery: {delivery}")
        for delivery in ("direct", "agent", "injector")
    },
    restarted: (f"{ENVIRONMENT}.sources[registry].onChange", "nothing is restarted"),
    by_entry: (f"{ENVIRONMENT}.sources[registry].keys", "leave keys out"),
    lost: (PULL, "environment 'prod-canary' has no source 'registry'"),
    ignored: (f"{ENVIRONMENT}.sources[store].onChange", "must be reload or restart"),
    in_part: (
        f"{ENVIRONMENT}.sources[store].keys[username].onChange",
        "must be reload, as onChange of the source is",
    ),
    torn: ("spec.tiers.valkey.usernameSecret.source", "credentials with a lease change together"),
}


@pytest.mark.parametrize("change", FAULTS, ids=lambda change: change.__name__)
def test_a_fault_is_named_with_its_remedy(
    change: Change, load_example: Example, make_target: Callable[..., Target]
) -> None:
    path, words = FAULTS[change]
    body = copy.deepcopy(load_example("environments"))
    change(body["spec"], at(body["spec"], "prod-canary"))
    body["metadata"] |= {"namespace": "vision"}
    faults = review(None, body).faults
    assert path in {fault.path for fault in faults}
    (message,) = {fault.message for fault in faults if fault.path == path}
    assert words in message
    assert message.endswith(".")
    with pytest.raises(InvalidSpec) as refused:
        record_of(make_target("environments", **body["spec"]))
    assert str(refused.value) == str(faults[0])


def test_what_another_environment_lacks_stops_nothing_yet(
    load_example: Example, make_target: Callable[..., Target]
) -> None:
    body = copy.deepcopy(load_example("environments"))
    body["metadata"] |= {"namespace": "vision"}
    at(body["spec"], "staging")["sources"] = []
    assert review(None, body).allowed
    # What is wrong with it by itself is said, and stops no pass of the chosen one.
    lab = at(body["spec"], "lab")
    lab["sources"] = []
    (fault,) = review(None, body).faults
    assert fault.path == "spec.config.environments[lab].vault"
    record_of(make_target("environments", **body["spec"]))
