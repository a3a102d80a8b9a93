"""Golden files are current, and every leaf of the spec has an effect."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chiasm_contract.api.crd import crd
from chiasm_operator import render
from chiasm_operator.render import Target
from chiasm_operator.resource import InvalidSpec, from_manifest, parse_spec

from tests.operator.render.rendered import ROOT, child, load_tool, pod_spec


def test_golden_renders_are_current() -> None:
    for path, text in load_tool("golden_files").outputs(ROOT).items():
        assert path.read_text() == text, f"{path.name} is not current; run make generate"


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
    "spec.engine.kernels": "torch",
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
    "spec.config.environment": "staging",
    "spec.tiers.retiredNamespaces.0": "fedcba9876543210",
    "spec.observability.tracing.endpoint": "https://elsewhere:4317",
    "spec.observability.tracing.sampleRatio": 0.3,
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
    if path == ("config", "environment"):
        return "environments"
    if "usernameSecret" in path:
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
    if path != ("model", "source", "builtin")
    and (path[0] != "rollout" or path[1] in RENDERED)
    # test_environments.py: one source is of one kind only.
    and path[:2] != ("config", "environments")
    # It makes no object; what it does is in tests/operator/metering.
    and path[0] != "cost"
    and path[-1] != "source"
]


@pytest.mark.parametrize("path", LEAVES, ids=lambda path: ".".join(map(str, path)))
def test_every_leaf_changes_what_is_rendered(
    path: tuple[str | int, ...], load_example: Callable[[str], dict[str, Any]]
) -> None:
    spec = load_example(base_of(path))["spec"]
    if path == ("tiers", "valkey", "tls"):  # these are of use with TLS only
        for name in ("caSecret", "clientCertificateSecret", "clientKeySecret"):
            del spec["tiers"]["valkey"][name]
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
