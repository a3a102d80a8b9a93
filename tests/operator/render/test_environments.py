"""Every field of the chosen environment reaches what is rendered, and none of another does."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_contract.config import SidecarConfig
from chiasm_contract.configuration import Configuration
from chiasm_operator import render
from chiasm_operator.reconcile.configuration.seen import look
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.render import Target
from chiasm_operator.render.configuration.references import current, in_pods, references
from chiasm_operator.render.revision import parse, record_of
from chiasm_operator.resource import InvalidSpec, parse_spec

from tests.operator.render.rendered import child, load_tool, pod_spec

MakeTarget = Callable[..., Target]
VALKEY = {
    "host": "valkey.cache.svc",
    "usernameSecret": {"source": "store", "key": "username"},
    "passwordSecret": {"source": "store", "key": "password"},
}
VAULT = {
    "address": "https://openbao.vault.svc:8200",
    "flavor": "vault",
    "namespace": "teams",
    "caConfigMap": {"name": "authority"},
    "auth": {"mount": "prod", "role": "reader", "audience": "vault-server"},
    "delivery": "agent",
    "agentImage": "example.com/agent:1",
}
KINDS: dict[str, dict[str, Any]] = {
    "configMap": {"name": "store"},
    "secret": {"name": "store"},
    "kv": {"mount": "kv", "path": "store"},
    "database": {"mount": "database", "role": "store"},
    "rabbitmq": {"mount": "rabbitmq", "role": "store"},
    "pki": {"mount": "issuers", "role": "store", "commonName": "reader", "ttlSeconds": 600},
}


def environment(kind: str = "database", **more: Any) -> dict[str, Any]:
    source = {
        "name": "store",
        kind: copy.deepcopy(KINDS[kind]),
        "onChange": "restart",
        "keys": [{"key": "username", "onChange": "ignore"}],
    }
    if kind in ("database", "rabbitmq", "pki"):
        del source["keys"]  # entries of a lease change together
    if kind in ("configMap", "secret"):
        source["keys"][0]["env"] = "CHIASM_WORKER_RETRIES"
    needs = {} if kind in ("configMap", "secret") else {"vault": copy.deepcopy(VAULT)}
    return {
        "name": "prod",
        "weight": "5",
        "images": {"worker": "example.com/w:1", "sidecar": "example.com/s:1"},
        "sources": [source],
        **needs,
        **more,
    }


def sections(*environments: dict[str, Any]) -> dict[str, Any]:
    config = {"environment": environments[0]["name"], "environments": list(environments)}
    return {"config": config, "tiers": {"host": {"maxBytes": "64Mi"}, "valkey": VALKEY}}


def leaves(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


OTHER = {
    "address": "https://elsewhere:8201",
    "flavor": "openbao",
    "delivery": "direct",
    "onChange": "reload",
    "env": "CHIASM_PEER_RETRIES",
}
# What fields of the spec name it by; decided before anything is rendered.
NAMES = ("sources", 0, "name")
CASES = [
    (kind, path)
    for kind in KINDS
    for path in leaves(environment(kind))
    if path not in (NAMES, ("weight",)) and (kind == "database" or path[0] == "sources")
]


@pytest.mark.parametrize(("kind", "path"), CASES, ids=str)
def test_each_leaf_of_the_chosen_one_changes_what_is_rendered(
    kind: str, path: tuple[str | int, ...], make_target: MakeTarget
) -> None:
    given = environment(kind)
    other = copy.deepcopy(given)
    node = other
    for key in path[:-1]:
        node = node[key]  # type: ignore[index]
    value = node[path[-1]]  # type: ignore[index]
    last = str(path[-1])
    node[path[-1]] = OTHER.get(last, value + 1 if isinstance(value, int) else f"{value}x")  # type: ignore[index]
    if last == "delivery":
        del other["vault"]["agentImage"]
    if path == ("sources", 0, "keys", 0, "onChange"):
        node["onChange"] = "restart"  # type: ignore[index]
    before, after = make_target(**sections(given)), make_target(**sections(other))
    assert before.revision != after.revision

    def text(target: Target) -> str:
        record = record_of(target)
        made = [record.template, record.files, record.objects]
        return json.dumps(made).replace(target.revision, "R")

    assert text(before) != text(after), "not only the record may differ"


def schema_leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if "properties" in node:
        for name, item in node["properties"].items():
            yield from schema_leaves(item, (*path, name))
    elif node.get("type") == "array":
        yield from schema_leaves(node["items"], path)
    else:
        yield path


def test_each_leaf_of_the_schema_is_among_them() -> None:
    from chiasm_contract.api.crd import crd

    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    config = schema["properties"]["spec"]["properties"]["config"]["properties"]
    tried = {tuple(key for key in path if isinstance(key, str)) for _, path in CASES}
    # A weight is the rollout's: rollout/test_environments.py.
    beside = {("sources", "name"), ("weight",)}
    assert set(schema_leaves(config["environments"])) == tried | beside


def test_what_is_no_part_of_the_chosen_one_makes_no_revision(make_target: MakeTarget) -> None:
    base = make_target(**sections(environment())).revision
    other = {"name": "staging", "weight": 7, "images": {"worker": "example.com/other"}}
    assert make_target(**sections(environment(), other)).revision == base
    assert make_target(**sections(environment(weight=50))).revision == base
    assert make_target(**sections(environment(images={}))).revision != base


def test_a_revision_without_environments_is_what_it_was(make_target: MakeTarget) -> None:
    """Pods of an older operator go on, with its name for what they serve."""
    assert make_target().revision == "v1-e4fdac64d6"


def test_an_image_is_the_environment_s_before_the_chart_s(make_target: MakeTarget) -> None:
    target = make_target(**sections(environment(images={"worker": "example.com/w:1"})))
    spec = pod_spec(target)
    assert spec["containers"][0]["image"] == "example.com/w:1"
    (sidecar,) = (each for each in spec["initContainers"] if each["name"] == "sidecar")
    assert sidecar["image"] == target.images.sidecar
    # The same images, once from the chart and once from the environment, are one revision.
    named = environment(images={"worker": target.images.worker, "sidecar": target.images.sidecar})
    assert make_target(**sections(named)).revision == (
        make_target(**sections(environment(images={}))).revision
    )


def test_a_record_brings_its_environment_back(make_target: MakeTarget) -> None:
    target = make_target(**sections(environment("kv"), {"name": "staging"}))
    stored = render.revision.render(target, record_of(target), 1)
    record = parse(stored)
    assert record is not None
    assert record == record_of(target)
    (kept,) = record.spec["config"]["environments"]
    assert "weight" not in kept
    assert kept["vault"]["auth"]["role"] == "reader"
    again = parse_spec(record.spec)
    assert again.config.chosen is not None
    assert Target(target.resource, again, target.images).revision == target.revision


def test_pods_say_their_environment_and_no_selector_does(make_target: MakeTarget) -> None:
    deployment = child(make_target(**sections(environment())), "Deployment")["spec"]
    assert deployment["template"]["metadata"]["labels"][names.LABEL_ENVIRONMENT] == "prod"
    assert names.LABEL_ENVIRONMENT not in deployment["selector"]["matchLabels"]
    assert names.LABEL_ENVIRONMENT not in json.dumps(render.children(make_target()))


def test_a_setting_comes_from_its_source_once(make_target: MakeTarget) -> None:
    """Server-side apply refuses a list in which one variable is twice."""
    given = environment("configMap")
    given["sources"][0]["keys"] = [
        {"key": "level", "env": "CHIASM_LOG_LEVEL", "onChange": "restart"}
    ]
    spec = pod_spec(make_target(**sections(given)))
    (sidecar,), (worker,) = spec["initContainers"], spec["containers"]
    levels = [item for item in sidecar["env"] if item["name"] == "CHIASM_LOG_LEVEL"]
    reference = {"configMapKeyRef": {"name": "store", "key": "level"}}
    assert levels == [{"name": "CHIASM_LOG_LEVEL", "valueFrom": reference}]
    assert {"name": "CHIASM_LOG_LEVEL", "value": "INFO"} in worker["env"]


@pytest.mark.parametrize(
    ("delivery", "kind", "path", "leased"),
    [
        ("direct", "database", None, True),
        ("agent", "rendered", "/run/chiasm-agent/store.json", True),
        ("injector", "rendered", "/vault/secrets/store.json", True),
        ("csi", "mounted", "/etc/chiasm-sources/store", True),
        # One Secret for all pods: what they have they have alike.
        ("external-secrets", "mounted", "/etc/chiasm-sources/store", False),
        ("vso", "mounted", "/etc/chiasm-sources/store", False),
    ],
)
def test_the_sidecar_finds_what_is_delivered(
    delivery: str, kind: str, path: str | None, leased: bool, make_target: MakeTarget
) -> None:
    given = environment()
    given["vault"] |= {"delivery": delivery}
    del given["vault"]["agentImage"], given["vault"]["caConfigMap"]
    target = make_target(**sections(given))
    data = child(target, "ConfigMap")["data"]
    configuration = SidecarConfig.model_validate_json(data["sidecar.json"]).configuration
    assert isinstance(configuration, Configuration)
    (source,) = configuration.sources
    assert (source.kind, source.leased, source.uses) == (kind, leased, ("valkey",))
    assert (str(source.path) if source.path else None) == path
    assert (source.mount, source.entry) == (
        ("database", "store") if delivery == "direct" else (None, None)
    )
    assert (configuration.vault is not None) == (delivery == "direct")
    assert source.on("username") == source.on("password") == "restart"


def test_entries_of_a_source_may_differ(make_target: MakeTarget) -> None:
    data = child(make_target(**sections(environment("kv"))), "ConfigMap")["data"]
    configuration = SidecarConfig.model_validate_json(data["sidecar.json"]).configuration
    assert configuration is not None
    (source,) = configuration.sources
    assert source.on("username") == "ignore"
    assert source.on("password") == "restart"


def test_each_field_that_names_a_source_reads_what_is_in_use(make_target: MakeTarget) -> None:
    target = make_target("environments")
    named = references(target.spec)
    assert [each.field.removeprefix("spec.") for each in named] == [
        "tiers.peers.secret",
        "tiers.valkey.caSecret",
        "tiers.valkey.usernameSecret",
        "tiers.valkey.passwordSecret",
        "tiers.valkey.clientCertificateSecret",
        "tiers.valkey.clientKeySecret",
        "tenants.keysSecret",
        "tenants.serverKeySecret",
        "podTemplate.imagePullSecrets[0]",
    ]
    text = child(target, "ConfigMap")["data"]["sidecar.json"]
    for each in named:
        taken = f'"{current(each.source, each.key)}"' in text
        assert taken == (each.use is not None), each
    mounted = {volume["name"] for volume in pod_spec(target)["volumes"]}
    assert not mounted & {"valkey", "peers", "tenant-keys", "server-key"}, "no Secret by name"


def pulling(kind: str, delivery: str | None = None, **more: Any) -> dict[str, Any]:
    """Sections of a spec whose nodes pull images by the source `store`, which nothing else uses."""
    given = environment(kind)
    given["sources"][0] = {"name": "store", kind: KINDS[kind]}
    if delivery:
        given["vault"] = {"address": "https://vault", "auth": {"role": "r"}, "delivery": delivery}
    secrets = [{"name": "registry"}, {"source": "store"}]
    return {**sections(given), "tiers": None, "podTemplate": {"imagePullSecrets": secrets}, **more}


@pytest.mark.parametrize(
    ("kind", "delivery", "name"),
    [
        ("secret", None, "store"),
        ("kv", "external-secrets", "{whole}-store"),
        ("kv", "vso", "{whole}-store"),
    ],
)
def test_nodes_pull_images_by_a_source_and_no_pod_has_it(
    kind: str, delivery: str | None, name: str, make_target: MakeTarget
) -> None:
    target = make_target(**pulling(kind, delivery))
    pod = pod_spec(target)
    whole = target.revision_name(target.revision)
    assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": name.format(whole=whole)}]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert volumes == {volume["name"] for volume in pod_spec(make_target())["volumes"]}
    data = child(target, "ConfigMap")["data"]
    configuration = SidecarConfig.model_validate_json(data["sidecar.json"]).configuration
    assert configuration == Configuration(environment="prod")
    assert look(target, Observed(), {target.revision: target.spec}).has_sources is False


def test_a_pod_has_a_source_by_which_images_are_pulled_if_a_field_of_it_takes_it(
    make_target: MakeTarget,
) -> None:
    tiers = {"host": {"maxBytes": "64Mi"}, "valkey": VALKEY}
    target = make_target(**pulling("secret", tiers=tiers))
    assert [each.name for each in in_pods(target.spec)] == ["store"]
    assert "source-store" in {volume["name"] for volume in pod_spec(target)["volumes"]}


@pytest.mark.parametrize("delivery", [None, *load_tool("golden_files").DELIVERIES])
def test_only_the_sidecar_has_sources(
    delivery: str | None, make_target: MakeTarget, load_example: Callable[[str], dict[str, Any]]
) -> None:
    tool = load_tool("golden_files")
    manifest = load_example("environments")
    spec = (tool.by(manifest, delivery) if delivery else manifest)["spec"]
    pod = pod_spec(make_target("environments", **spec))
    containers = {each["name"]: each for each in (*pod["initContainers"], *pod["containers"])}
    mounted = {
        name: {mount["name"]: mount for mount in each["volumeMounts"]}
        for name, each in containers.items()
    }
    volumes = {volume["name"] for volume in pod["volumes"]}
    ours = {name for name in volumes if name.startswith(("source-", "config-", "vault-", "agent-"))}
    assert ours
    assert not ours & mounted["worker"].keys()
    # The injector's own containers mount the token; it is there by its volume's name.
    injected = {"vault-token", "vault-ca"} if delivery == "injector" else set()
    assert ours - injected <= mounted["sidecar"].keys() | mounted.get("agent", {}).keys()
    assert pod["automountServiceAccountToken"] is False
    writable = {n for n, m in mounted["sidecar"].items() if n in ours and not m.get("readOnly")}
    assert writable == {"config-current"}
    assert all("subPath" not in mount for each in mounted.values() for mount in each.values())
    (traffic,) = (each["configMap"] for each in pod["volumes"] if each["name"] == "traffic")
    assert traffic["optional"] is True, "else an older ConfigMap without approvals starts no pod"
    assert [item["key"] for item in traffic["items"]] == ["traffic.json", "config.json"]


def test_a_pod_without_sources_is_as_it_was(make_target: MakeTarget) -> None:
    bare = {"name": "staging"}
    config = {"environment": "staging", "environments": [bare]}
    spec, before = pod_spec(make_target(config=config)), pod_spec(make_target())
    assert [each["name"] for each in spec["volumes"]] == [
        each["name"] for each in before["volumes"]
    ]
    data = child(make_target(config=config), "ConfigMap")["data"]
    configuration = SidecarConfig.model_validate_json(data["sidecar.json"]).configuration
    assert configuration == Configuration(environment="staging")


@pytest.mark.parametrize(
    ("address", "delivery", "port"),
    [
        ("https://openbao.vault.svc:8200", "direct", 8200),
        ("https://openbao.example.com", "agent", 443),
        ("http://openbao", "injector", 80),
        ("https://openbao.vault.svc:8200", "csi", None),
        ("https://openbao.vault.svc:8200", "vso", None),
    ],
)
def test_pods_reach_the_server_that_they_ask(
    address: str, delivery: str, port: int | None, make_target: MakeTarget
) -> None:
    given = environment(vault={"address": address, "delivery": delivery, "auth": {"role": "r"}})
    policy = child(make_target(**sections(given)), "NetworkPolicy")["spec"]
    reached = {each["port"] for each in policy["egress"][0]["ports"]}
    assert reached == {53, 6379} | ({port} if port else set())


@pytest.mark.parametrize(
    "address",
    ["https://bao:0", "https://bao:99999", "https://bao:port", "http://[:::::]", "http://["],
)
def test_an_address_that_cannot_be_taken_apart_is_refused_by_its_field(address: str) -> None:
    """Else each pass over the resource ends in an error that its status does not tell."""
    given = environment(vault={"address": address, "auth": {"role": "r"}})
    spec = {"model": {"source": {"builtin": "demo"}}, **sections(given)}
    with pytest.raises(InvalidSpec, match=r"vault\.address"):
        parse_spec(spec)
