"""The autoscaler that is rendered, and what is said of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from chiasm_contract.conditions import Finding, Reason
from chiasm_operator import render
from chiasm_operator.reconcile import autoscaling, children
from chiasm_operator.reconcile.diagnosis import refusals
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.render import Target
from chiasm_operator.resource import from_manifest

MakeTarget = Callable[..., Target]
MakeObserved = Callable[..., Observed]

KEDA_CRD = Path(__file__).parent / "keda" / "keda.sh_scaledobjects.yaml"
BY_CPU = {"maxReplicas": 5, "hpa": {"cpuUtilizationPercent": 70}}
ITSELF = {"apiVersion": "chiasm.dev/v1alpha1", "kind": "MultimodalInference", "name": "bursty"}


def scaler(target: Target) -> dict[str, Any]:
    return dict(render.children(target)[-1])


def undeclared(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Fields that the schema does not name: the API server would drop or refuse them."""
    if isinstance(value, dict) and "properties" in schema:
        for name, child in value.items():
            if name in schema["properties"]:
                yield from undeclared(child, schema["properties"][name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(value, list):
        for child in value:
            yield from undeclared(child, schema["items"], f"{path}[]")


def test_kedas_own_schema_takes_the_scaled_object(make_target: MakeTarget) -> None:
    made = scaler(make_target("autoscaled"))
    (version,) = yaml.safe_load(KEDA_CRD.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert made["apiVersion"] == f"keda.sh/{version['name']}"
    jsonschema.validate(made, schema)
    assert not list(undeclared(made["spec"], schema["properties"]["spec"]))


def test_what_is_scaled_is_the_resource(make_target: MakeTarget) -> None:
    assert scaler(make_target("autoscaled"))["spec"]["scaleTargetRef"] == ITSELF
    scaled = scaler(make_target(autoscaling=BY_CPU))["spec"]["scaleTargetRef"]
    assert scaled == ITSELF | {"name": "shelf-reader"}


@pytest.mark.parametrize(
    ("amount", "expected"), [("8", "8"), (8, "8"), ("500m", "0.5"), ("1.5", "1.5"), ("2k", "2000")]
)
def test_keda_reads_plain_numbers(
    amount: str | int, expected: str, make_target: MakeTarget
) -> None:
    keda = {"prometheus": [{"serverAddress": "http://p", "query": "q", "threshold": amount}]}
    made = scaler(make_target(autoscaling={"maxReplicas": 3, "keda": keda}))
    assert made["spec"]["triggers"][0]["metadata"] == {
        "serverAddress": "http://p",
        "query": "q",
        "threshold": expected,
    }


def test_pods_are_not_of_another_revision_by_it(make_target: MakeTarget) -> None:
    assert make_target(autoscaling=BY_CPU).revision == make_target().revision


@pytest.mark.parametrize(("most", "budget"), [(1, False), (2, True)])
def test_the_budget_does_not_come_and_go_with_the_pods(
    most: int, budget: bool, make_target: MakeTarget
) -> None:
    target = make_target(replicas=1, autoscaling=BY_CPU | {"maxReplicas": most})
    kinds = {item["kind"] for item in render.children(target)}
    assert ("PodDisruptionBudget" in kinds) is budget


def test_an_autoscaler_no_longer_wanted_goes_and_replicas_stay(
    make_target: MakeTarget,
    make_observed: MakeObserved,
    decided: Callable[..., Any],
    wanted: Callable[..., Any],
) -> None:
    scaled = make_observed(make_target(replicas=4, autoscaling=BY_CPU))
    after = make_target(replicas=4)
    done = children.plan(after, wanted(after, scaled), scaled, decided(after, scaled))
    assert done.delete == (("HorizontalPodAutoscaler", "shelf-reader"),)
    assert done.apply == ()


# --- what is said of it ---


def judged(target: Target, observed: Observed, *conditions: dict[str, str]) -> Finding:
    kinds = {"HorizontalPodAutoscaler", "ScaledObject"}
    live = [
        copy.deepcopy(dict(item)) | {"status": {"conditions": list(conditions)}}
        for item in observed.children
        if item["kind"] in kinds
    ]
    finding = autoscaling.judge(target, Observed(children=tuple(live)), ())
    assert finding is not None
    return finding


def test_without_autoscaling_nothing_is_said(make_target: MakeTarget) -> None:
    assert autoscaling.judge(make_target(), Observed(), ()) is None


# As Kubernetes 1.37 writes them.
NO_METRICS = {
    "type": "ScalingActive",
    "status": "False",
    "reason": "FailedGetContainerResourceMetric",
    "message": "the HPA was unable to compute the replica count: failed to get container metrics",
}
ABLE = {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "-"}
LIMITED = {
    "type": "ScalingLimited",
    "status": "True",
    "reason": "TooManyReplicas",
    "message": "the desired replica count is more than the maximum replica count",
}
NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "ScaledObjectCheckFailed",
    "message": "failed to ensure HPA is correctly created for ScaledObject",
}


@pytest.mark.parametrize(
    ("example", "said", "expected", "words"),
    [
        ("minimal", (), "Unknown NotReported", "has not reported yet"),
        ("minimal", (ABLE, NO_METRICS), "False AutoscalerInactive", "Is metrics-server installed"),
        ("minimal", (ABLE,), "True AutoscalerActive", "sets spec.replicas"),
        ("minimal", (ABLE, LIMITED), "True AutoscalerActive", "spec.replicas. The desired replica"),
        ("autoscaled", (), "Unknown NotReported", "has not reported yet"),
        ("autoscaled", (NOT_READY,), "False AutoscalerInactive", "ScaledObjectCheckFailed"),
        ("autoscaled", ({"type": "Active", "status": "Unknown"},), "Unknown NotReported", "KEDA"),
        ("autoscaled", (NOT_READY | {"status": "True"},), "True AutoscalerActive", "KEDA sets"),
    ],
)
def test_its_own_words_are_passed_on(
    example: str,
    said: tuple[dict[str, str], ...],
    expected: str,
    words: str,
    make_target: MakeTarget,
    make_observed: MakeObserved,
) -> None:
    target = make_target(example, **({"autoscaling": BY_CPU} if example == "minimal" else {}))
    finding = judged(target, make_observed(target), *said)
    assert f"{finding.status} {finding.reason}" == expected
    assert words in finding.message


@pytest.mark.parametrize(
    ("manager", "operation", "told"),
    [
        ("argocd-controller", "Apply", True),
        ("kubectl-client-side-apply", "Update", False),  # it owns defaults too
        ("kube-controller-manager", "Update", False),
        ("kubectl-edit", "Update", False),
    ],
)
def test_a_manifest_that_undoes_the_autoscaler_is_named(
    manager: str, operation: str, told: bool, make_target: MakeTarget
) -> None:
    entry = {
        "manager": manager,
        "operation": operation,
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    target = make_target(autoscaling=BY_CPU)
    metadata = {"name": "a", "namespace": "b", "uid": "c", "managedFields": [entry]}
    resource = from_manifest({"metadata": metadata})
    finding = autoscaling.judge(Target(resource, target.spec, target.images), Observed(), ())
    assert finding is not None
    assert (finding.reason is Reason.REPLICAS_CONTESTED) is told
    assert (repr(manager) in finding.message) is told


@pytest.mark.parametrize(
    ("applied", "told"),
    [
        ('{"spec": {"replicas": 2}}', True),
        ('{"spec": {"replicas": null}}', False),
        ('{"spec": {}}', False),
        ('{"spec": 1}', False),
        ("[]", False),
        ("{", False),
    ],
)
@pytest.mark.parametrize("manager", ["kubectl-client-side-apply", "argocd-controller"])
def test_who_applies_on_the_clients_side_is_asked_for_the_manifest(
    manager: str, applied: str, told: bool
) -> None:
    """The defaults of what it creates are its own as well: the field's owner says nothing."""
    annotation = "kubectl.kubernetes.io/last-applied-configuration"
    owned = {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}, "f:spec": {"f:replicas": {}}}
    entries = [
        {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {}},
        {"manager": manager, "operation": "Update", "fieldsV1": owned},
    ]
    metadata = {"name": "a", "namespace": "b", "uid": "c", "managedFields": entries}
    resource = from_manifest({"metadata": {**metadata, "annotations": {annotation: applied}}})
    assert resource.appliers_of_replicas == ((manager,) if told else ())


def test_a_cluster_without_keda_is_named(make_target: MakeTarget) -> None:
    text = "the server could not find the requested resource"
    problem = refusals.child("ScaledObject", "bursty", 404, text)
    finding = autoscaling.judge(make_target("autoscaled"), Observed(), (problem,))
    assert finding is not None
    assert finding.reason is Reason.KEDA_NOT_INSTALLED
    assert "install KEDA or use spec.autoscaling.hpa" in finding.message
