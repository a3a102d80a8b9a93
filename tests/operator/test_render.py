"""What is rendered: golden files, every spec leaf has an effect, pods are locked down."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract import builtin_models, names
from chiasm_contract.api.crd import crd
from chiasm_contract.config import SidecarConfig, WorkerConfig
from chiasm_operator import render
from chiasm_operator.render import Target
from chiasm_operator.render import target as target_module
from chiasm_operator.resource import InvalidSpec, Manifest, from_manifest, parse_spec

ROOT = Path(__file__).resolve().parents[2]


def load_tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(target: Target, kind: str) -> Manifest:
    """The one of that kind; of ConfigMaps that of the revision."""
    return next(
        item
        for item in render.children(target)
        if item["kind"] == kind
        and (kind != "ConfigMap" or names.LABEL_REVISION in item["metadata"]["labels"])
    )


def pod_spec(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = child(target, "Deployment")["spec"]["template"]["spec"]
    return found


def test_golden_renders_are_current() -> None:
    for path, text in load_tool("golden_files").outputs(ROOT).items():
        assert path.read_text() == text, f"{path.name} is not current; run make generate"


# --- every leaf of the spec has an effect ---


def spec_leaves() -> Iterator[tuple[str | int, ...]]:
    """Path of every leaf of the schema; 0 stands for a list's first item."""

    def walk(node: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
        if "properties" in node:
            for name, item in node["properties"].items():
                yield from walk(item, (*path, name))
        elif node.get("type") == "array":
            yield from walk(node["items"], (*path, 0))
        else:
            yield path

    schema = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield from walk(schema["properties"]["spec"], ())


def at(node: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        node = node[key]
    return node


WORDS = {
    "spec.engine.dtype": "float16",
    "spec.config.logLevel": "error",
    "spec.resources.device.type": "amd",
    "spec.model.source.image.pullPolicy": "Never",
    "spec.podTemplate.tolerations.0.operator": "Exists",
    "spec.podTemplate.tolerations.0.effect": "NoSchedule",
    "spec.podTemplate.topologySpreadConstraints.0.whenUnsatisfiable": "ScheduleAnyway",
    "spec.podTemplate.topologySpreadConstraints.0.nodeAffinityPolicy": "Honor",
    "spec.podTemplate.topologySpreadConstraints.0.nodeTaintsPolicy": "Honor",
    "spec.autoscaling.hpa.podMetrics.0.averageValue": "5",
    "spec.autoscaling.keda.prometheus.0.threshold": "9",
    "spec.autoscaling.keda.prometheus.0.activationThreshold": "1500m",
    "spec.autoscaling.keda.prometheus.0.authentication.mode": "tls",
    "spec.engine.blockSize": 64,
    "spec.model.vision.compression": 8,
    "spec.model.vision.compressionMethod": "salient",
    "spec.model.vision.lowDetailCompression": 8,
    "spec.engine.kvCacheBytes": "3Gi",
    "spec.engine.maxMediaBytes": "3Gi",
    "spec.media.maxBodyBytes": "65Mi",
    "spec.model.modalities.image.maxBytes": "11Mi",
    "spec.model.modalities.video.maxBytes": "41Mi",
    "spec.model.modalities.audio.maxBytes": "9Mi",
    "spec.gateway.split": "sidecars",
    "spec.rollout.maxSurge": "51%",
    "spec.tiers.stagingBytes": "129Mi",
    "spec.tiers.host.maxBytes": "301Mi",
    "spec.tiers.disk.maxBytes": "21Gi",
    "spec.tiers.peers.transport": "stream",
    "spec.tiers.valkey.maxBytes": "41Gi",
    "spec.tiers.retiredNamespaces.0": "fedcba9876543210",
}


def another(value: Any, name: str) -> Any:
    if name in WORDS:
        return WORDS[name]
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}x"
        case dict() if name == "spec.podTemplate.affinity":
            return {}
        case dict():
            key = sorted(value)[0]
            rest = {other: value[other] for other in value if other != key}
            return rest or {f"{key}x": value[key]}
    raise AssertionError(name)


def base_of(path: tuple[str | int, ...]) -> str:
    if path[:3] == ("model", "source", "path"):
        return "claim"
    if path == ("replicas",):
        return "minimal"
    if path[:2] == ("autoscaling", "keda") or path[-1] == "claimTemplateName":
        return "autoscaled"
    # With a name of its own, a GPU's kind does not show.
    return "claim" if path == ("resources", "device", "type") else "complete"


def rendered(spec: dict[str, Any]) -> str:
    metadata = {"name": "reader", "namespace": "vision", "uid": "u"}
    resource = from_manifest({"metadata": metadata, "spec": spec})
    load = load_tool("golden_files")
    return json.dumps(render.children(Target(resource, parse_spec(spec), load.IMAGES)))


# How a revision comes in is no part of what is rendered for it: rollout/test_fields.py.
RENDERED = {"maxSurge", "maxUnavailable", "progressDeadlineSeconds", "drainSeconds"} | {
    "terminationGracePeriodSeconds"
}
LEAVES = [
    path
    for path in spec_leaves()
    if path != ("model", "source", "builtin") and (path[0] != "rollout" or path[1] in RENDERED)
]


@pytest.mark.parametrize("path", LEAVES, ids=lambda path: ".".join(map(str, path)))
def test_every_leaf_changes_what_is_rendered(
    path: tuple[str | int, ...], load_example: Callable[[str], dict[str, Any]]
) -> None:
    spec = load_example(base_of(path))["spec"]
    if path == ("tiers", "valkey", "tls"):  # an authority is of use with TLS only
        del spec["tiers"]["valkey"]["caSecret"]
    other = copy.deepcopy(spec)
    name = ".".join(["spec", *map(str, path)])
    at(other, path[:-1])[path[-1]] = another(at(spec, path), name)
    before, after = rendered(spec), rendered(other)
    revision = Target(
        from_manifest({"metadata": {"name": "reader", "namespace": "vision", "uid": "u"}}),
        parse_spec(spec),
        load_tool("golden_files").IMAGES,
    ).revision
    changed_revision = Target(
        from_manifest({"metadata": {"name": "reader", "namespace": "vision", "uid": "u"}}),
        parse_spec(other),
        load_tool("golden_files").IMAGES,
    ).revision
    # Not only the revision's own name may differ: the field must reach a part.
    assert before.replace(revision, "R") != after.replace(changed_revision, "R"), name


def test_the_builtin_source_has_an_effect(make_target: Callable[..., Target]) -> None:
    config = json.loads(child(make_target(), "ConfigMap")["data"]["worker.json"])
    assert config["model_path"] == "/opt/chiasm/models/demo"
    assert not [item for item in pod_spec(make_target())["volumes"] if item["name"] == "model"]


# --- what pods look like ---


@pytest.mark.parametrize("name", ["minimal", "complete", "claim", "autoscaled", "sharing"])
def test_configs_are_what_the_parts_read(name: str, make_target: Callable[..., Target]) -> None:
    data = child(make_target(name), "ConfigMap")["data"]
    worker = WorkerConfig.model_validate_json(data["worker.json"])
    sidecar = SidecarConfig.model_validate_json(data["sidecar.json"])
    assert worker.model_id == sidecar.model_id
    assert worker.images == sidecar.images
    assert worker.socket_path == sidecar.worker_socket


@pytest.mark.parametrize("name", ["minimal", "complete", "claim", "autoscaled", "sharing"])
def test_pods_are_locked_down(name: str, make_target: Callable[..., Target]) -> None:
    spec = pod_spec(make_target(name))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_sidecar_is_native_and_the_worker_has_no_port(
    make_target: Callable[..., Target],
) -> None:
    spec = pod_spec(make_target())
    (sidecar,) = spec["initContainers"]
    (worker,) = spec["containers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert "ports" not in worker
    assert "readinessProbe" not in worker


def test_the_log_tells_why_a_container_ended(make_target: Callable[..., Target]) -> None:
    spec = pod_spec(make_target())
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_only_the_sidecar_sees_the_tenants_secrets(make_target: Callable[..., Target]) -> None:
    target = make_target("complete")
    spec = pod_spec(target)
    (sidecar,), (worker,) = spec["initContainers"], spec["containers"]
    secret = {volume["name"] for volume in spec["volumes"] if "secret" in volume}
    assert secret == {"tenant-keys", "server-key"}
    mounted = {mount["name"]: mount for mount in sidecar["volumeMounts"]}
    assert secret <= mounted.keys()
    assert not secret & {mount["name"] for mount in worker["volumeMounts"]}
    data = child(target, "ConfigMap")["data"]
    config = SidecarConfig.model_validate_json(data["sidecar.json"])
    assert config.tenants is not None
    assert str(config.tenants.keys_path) == mounted["tenant-keys"]["mountPath"]
    assert str(config.tenants.server_key_path.parent) == mounted["server-key"]["mountPath"]
    # What is mounted as a subPath stays as it is when the Secret changes.
    assert not [mount for mount in sidecar["volumeMounts"] if "subPath" in mount]
    assert "tenant" not in data["worker.json"]


def test_without_tenants_there_are_no_secrets(make_target: Callable[..., Target]) -> None:
    target = make_target()
    assert not [volume for volume in pod_spec(target)["volumes"] if "secret" in volume]
    sidecar = SidecarConfig.model_validate_json(child(target, "ConfigMap")["data"]["sidecar.json"])
    assert sidecar.tenants is None


def test_a_gpu_is_asked_for_by_its_resource(make_target: Callable[..., Target]) -> None:
    def limits(device: dict[str, str]) -> dict[str, str]:
        target = make_target(resources={"device": device})
        found: dict[str, str] = pod_spec(target)["containers"][0]["resources"]["limits"]
        return found

    assert limits({"type": "cpu"}) == {}
    assert limits({"type": "nvidia"}) == {"nvidia.com/gpu": "1"}
    assert limits({"type": "amd"}) == {"amd.com/gpu": "1"}
    assert limits({"type": "nvidia", "resourceName": "nvidia.com/mig-1g"}) == {
        "nvidia.com/mig-1g": "1"
    }


def test_both_containers_hear_at_once_that_the_pod_goes(
    make_target: Callable[..., Target],
) -> None:
    spec = pod_spec(make_target(rollout={"drainSeconds": 7}))
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}
    drain = {"preStop": {"exec": {"command": ["python3", "-m", "chiasm_sidecar.drain"]}}}
    assert spec["initContainers"][0]["lifecycle"] == drain


def test_no_drain_means_no_pause(make_target: Callable[..., Target]) -> None:
    assert "lifecycle" not in pod_spec(make_target(rollout={"drainSeconds": 0}))["containers"][0]


def test_answers_may_run_for_what_the_drain_leaves_of_the_grace(
    make_target: Callable[..., Target],
) -> None:
    def seconds(**rollout: int) -> float:
        data = child(make_target(rollout=rollout), "ConfigMap")["data"]
        return WorkerConfig.model_validate_json(data["worker.json"]).shutdown_seconds

    assert seconds(terminationGracePeriodSeconds=1000, drainSeconds=20) == 975
    assert seconds(terminationGracePeriodSeconds=10, drainSeconds=0) == 5


def test_by_default_a_pod_that_goes_cuts_no_answer(make_target: Callable[..., Target]) -> None:
    target = make_target()
    data = child(target, "ConfigMap")["data"]
    config = WorkerConfig.model_validate_json(data["worker.json"])
    assert config.shutdown_seconds >= target.spec.config.request_timeout_seconds


def test_only_the_sidecar_reaches_tiers(make_target: Callable[..., Target]) -> None:
    for name, own in (("complete", {"disk-tier", "valkey", "peers"}), ("minimal", set())):
        spec = pod_spec(make_target(name))
        (sidecar,), (worker,) = spec["initContainers"], spec["containers"]
        mounted = [{mount["name"] for mount in each["volumeMounts"]} for each in (sidecar, worker)]
        assert own <= mounted[0]
        assert not mounted[1] & {"disk-tier", "valkey", "peers"}
        assert {volume["name"] for volume in spec["volumes"]} == mounted[0] | mounted[1]
    worker_config = child(make_target("complete"), "ConfigMap")["data"]["worker.json"]
    assert "valkey" not in worker_config
    assert "disk" not in worker_config
    assert "peers" not in worker_config


def sharing(make_target: Callable[..., Target], transport: str | None, **changes: Any) -> Target:
    """One whose pods read each other's memory; None: as it is without a word."""
    peers: dict[str, Any] = {"secret": {"name": "peers", "key": "secret"}}
    if transport is not None:
        peers["transport"] = transport
    return make_target(tiers={"host": {"maxBytes": "64Mi"}, "peers": peers}, **changes)


@pytest.mark.parametrize(
    ("transport", "ports"), [(None, [9200]), ("stream", [9200]), ("nixl", [9200, 9201])]
)
def test_only_pods_of_the_resource_reach_each_other_s_memory(
    make_target: Callable[..., Target], transport: str | None, ports: list[int]
) -> None:
    target = sharing(make_target, transport)
    services = [each for each in render.children(target) if each["kind"] == "Service"]
    (headless,) = [each for each in services if each["spec"].get("clusterIP") == "None"]
    assert headless["metadata"]["name"] == f"{target.name}-peers"
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["selector"] == target.selector
    policy = child(target, "NetworkPolicy")["spec"]
    between = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    pods = [{"podSelector": {"matchLabels": target.selector}}]
    assert policy["ingress"][1:] == [{"from": pods, **between}]
    names, _, others = policy["egress"]
    assert [port["port"] for port in names["ports"]] == [53, 53]
    assert others == {"to": pods, **between}
    sidecar = SidecarConfig.model_validate_json(child(target, "ConfigMap")["data"]["sidecar.json"])
    assert sidecar.tiers is not None
    assert sidecar.tiers.peers is not None
    assert sidecar.tiers.peers.hosts == ("shelf-reader-peers.vision.svc",)
    assert sidecar.tiers.peers.transport == (transport or "stream")


def test_only_pods_that_read_by_nixl_run_the_image_for_it(
    make_target: Callable[..., Target],
) -> None:
    target = sharing(make_target, "nixl")
    assert pod_spec(target)["initContainers"][0]["image"] == target.images.sidecar_peers
    newer = replace(target.images, sidecar_peers="example.com/sidecar-peers:2")
    assert sharing(make_target, "nixl", images=newer).revision != target.revision
    host = {"host": {"maxBytes": "64Mi"}}
    for without in (make_target(tiers=host), sharing(make_target, "stream")):
        assert pod_spec(without)["initContainers"][0]["image"] == without.images.sidecar
    assert make_target(tiers=host, images=newer).revision == make_target(tiers=host).revision
    streaming = sharing(make_target, "stream")
    assert sharing(make_target, "stream", images=newer).revision == streaming.revision


def test_without_peers_there_is_one_service_and_no_port_for_them(
    make_target: Callable[..., Target],
) -> None:
    target = make_target()
    services = [each for each in render.children(target) if each["kind"] == "Service"]
    assert [each["metadata"]["name"] for each in services] == [
        f"{target.name}-{target.revision}",
        target.name,
    ]
    assert len(child(target, "NetworkPolicy")["spec"]["ingress"]) == 1


def test_bounds_and_retirements_reach_the_sidecar(make_target: Callable[..., Target]) -> None:
    data = child(make_target("complete"), "ConfigMap")["data"]
    tiers = SidecarConfig.model_validate_json(data["sidecar.json"]).tiers
    assert tiers is not None
    assert tiers.valkey is not None
    assert tiers.valkey.max_bytes == 40 * 2**30
    assert tiers.namespace_share == 0.5
    assert tiers.retired_path == Path("/etc/chiasm-namespaces/retired")


def test_a_single_pod_has_no_disruption_budget(make_target: Callable[..., Target]) -> None:
    kinds = {item["kind"] for item in render.children(make_target(replicas=1))}
    assert "PodDisruptionBudget" not in kinds
    assert len(kinds) == 6


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"source": {"builtin": "gpt"}}}, "no built-in model 'gpt'; there are: demo"),
        ({"model": {"source": {}}}, "set exactly one of builtin, path and image"),
        ({"engine": {"kvCacheBytes": "1048576.5"}}, "not a whole number of bytes"),
        ({"engine": {"blockSize": 24}}, "block_size"),
    ],
)
def test_what_no_part_would_accept_is_named(
    sections: dict[str, Any], message: str, make_target: Callable[..., Target]
) -> None:
    with pytest.raises(InvalidSpec, match=message):
        render.children(make_target(**sections))


def test_an_unknown_stored_field_is_named(make_target: Callable[..., Target]) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.engine\.turbo: Extra inputs"):
        make_target(engine={"turbo": True})


# --- revisions ---


def test_the_revision_ignores_what_the_deployment_handles(
    make_target: Callable[..., Target],
) -> None:
    base = make_target().revision
    assert make_target(replicas=7).revision == base
    assert make_target(rollout={"maxSurge": "50%", "progressDeadlineSeconds": 60}).revision == base
    assert make_target(rollout={"drainSeconds": 9}).revision != base


def test_the_revision_compares_quantities_by_value(make_target: Callable[..., Target]) -> None:
    one = make_target(engine={"kvCacheBytes": "1Gi"}).revision
    assert make_target(engine={"kvCacheBytes": "1024Mi"}).revision == one
    assert make_target(engine={"kvCacheBytes": 2**30}).revision == one
    assert make_target(engine={"kvCacheBytes": "1025Mi"}).revision != one


def test_the_revision_ignores_fields_at_their_defaults(make_target: Callable[..., Target]) -> None:
    stored = make_target().spec.model_dump(by_alias=True, exclude_none=True)
    assert make_target(**stored).revision == make_target().revision


def test_another_builtin_model_of_the_same_name_is_another_revision(
    make_target: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's identity goes into the ConfigMap that is named by the revision."""
    base = make_target().revision
    elsewhere = make_target("claim").revision
    known = builtin_models.builtin_identity("demo", "float32")
    monkeypatch.setattr(
        target_module,
        "builtin_identity",
        lambda *_: known | {"compute.weights.language": "0" * 64},
    )
    assert make_target().revision != base
    assert make_target("claim").revision == elsewhere


def test_other_images_are_another_revision(make_target: Callable[..., Target]) -> None:
    target = make_target()
    other = make_target(images=replace(target.images, worker="example.com/worker:2"))
    assert other.revision != target.revision
    assert len(other.revision) == len("v1-0123456789")


def test_a_record_keeps_the_spec_as_the_api_takes_it(make_target: Callable[..., Target]) -> None:
    """`chiasm rollout undo` writes it back; 50m was kept as 1/20, which the API refuses."""
    target = make_target(resources={"requests": {"cpu": "50m", "memory": "64Mi"}})
    kept = render.revision.record_of(target).spec["resources"]["requests"]
    assert kept == {"cpu": "50m", "memory": "64Mi"}
