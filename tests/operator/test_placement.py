"""Where a pod may lie: each field of `spec.podTemplate` at its place in the pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_operator import render
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]


def template(target: Target) -> dict[str, Any]:
    (deployment,) = [item for item in render.children(target) if item["kind"] == "Deployment"]
    found: dict[str, Any] = deployment["spec"]["template"]
    return found


def worker(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = template(target)["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeSelector", {"accelerator": "a100"}),
        ("tolerations", [{"key": "gpu", "operator": "Exists"}]),
        ("affinity", {"nodeAffinity": {}}),
        ("schedulerName", "bin-packing"),
        ("priorityClassName", "serving"),
        ("runtimeClassName", "nvidia"),
        ("imagePullSecrets", [{"name": "registry"}]),
    ],
)
def test_kubernetes_words_reach_the_pod_as_they_are(
    field: str, value: Any, make_target: MakeTarget
) -> None:
    target = make_target(podTemplate={field: value})
    assert template(target)["spec"][field] == value
    assert target.revision != make_target().revision
    assert field not in template(make_target())["spec"]


def test_labels_and_annotations_lie_beside_ours(make_target: MakeTarget) -> None:
    extra = {"labels": {"team": "vision"}, "annotations": {"example.com/cost": "4711"}}
    metadata = template(make_target(podTemplate=extra))["metadata"]
    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["chiasm.dev/name"] == "shelf-reader"
    assert metadata["annotations"]["example.com/cost"] == "4711"


def test_spread_is_over_the_pods_of_one_revision(make_target: MakeTarget) -> None:
    zones = {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    target = make_target(podTemplate={"topologySpreadConstraints": [zones]})
    (constraint,) = template(target)["spec"]["topologySpreadConstraints"]
    assert constraint["topologyKey"] == zones["topologyKey"]
    assert constraint["labelSelector"] == {"matchLabels": target.selector}
    assert constraint["matchLabelKeys"] == ["chiasm.dev/revision"]


def test_without_a_choice_pods_prefer_different_nodes(make_target: MakeTarget) -> None:
    (constraint,) = template(make_target())["spec"]["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"


def test_variables_are_the_workers_and_come_after_ours(make_target: MakeTarget) -> None:
    chosen = {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute"}
    target = make_target(podTemplate={"env": [chosen]})
    assert worker(target)["env"] == [*worker(make_target())["env"], chosen]
    assert chosen not in template(target)["spec"]["initContainers"][0]["env"]


@pytest.mark.parametrize(
    ("chosen", "written"),
    [("$(HOME)/x", "$$(HOME)/x"), ("a$b", "a$$b"), ("$$(HOME)", "$$$$(HOME)"), ("plain", "plain")],
)
def test_kubernetes_expands_nothing_in_a_value(
    chosen: str, written: str, make_target: MakeTarget
) -> None:
    """It reads $$ as $, and $(NAME) as another variable's value."""
    target = make_target(podTemplate={"env": [{"name": "MINE", "value": chosen}]})
    assert worker(target)["env"][-1] == {"name": "MINE", "value": written}


def test_groups_are_beside_the_pods_own(make_target: MakeTarget) -> None:
    target = make_target(podTemplate={"supplementalGroups": [44]})
    context = template(target)["spec"]["securityContext"]
    assert context["supplementalGroups"] == [44]
    assert context["runAsGroup"] == 10001


def test_a_claim_brings_the_gpu_and_nothing_is_counted(make_target: MakeTarget) -> None:
    device = {"type": "nvidia", "claimTemplateName": "one-small-gpu"}
    target = make_target(resources={"device": device})
    (claim,) = template(target)["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == "one-small-gpu"
    resources = worker(target)["resources"]
    assert resources["claims"] == [{"name": claim["name"]}]
    assert "nvidia.com/gpu" not in resources["limits"]
