"""May it be stored? Faults, and what is only worth a word."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_contract import names, rollout_annotations
from chiasm_operator.admission.envelope import NotAReview, answer
from chiasm_operator.admission.review import review

EXAMPLES = Path(__file__).resolve().parents[3] / "crds" / "examples"
WEIGHT = names.ANNOTATION_CANARY_WEIGHT
ACTION = names.ANNOTATION_ROLLOUT_ACTION

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(load_example: Callable[[str], dict[str, Any]]) -> Make:
    """The minimal example with these annotations, its sections updated by keyword."""

    def build(annotations: dict[str, str] | None = None, **sections: Any) -> dict[str, Any]:
        body = copy.deepcopy(load_example("minimal"))
        body["metadata"]["annotations"] = annotations or {}
        body["spec"] |= sections
        return body

    return build


def with_model(**more: Any) -> dict[str, Any]:
    return {"source": {"builtin": "demo"}, **more}


@pytest.mark.parametrize("name", ["minimal", "complete", "claim", "environments"])
def test_the_examples_are_allowed(name: str) -> None:
    assert review(None, yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())).allowed


def test_the_smallest_resource_is_not_lectured(make: Make) -> None:
    assert not review(None, make()).warnings


@pytest.mark.parametrize(
    ("annotations", "path"),
    [
        ({WEIGHT: "500"}, f"metadata.annotations[{WEIGHT}]"),
        ({ACTION: "go"}, f"metadata.annotations[{ACTION}]"),
        ({"chiasm.dev/weight": "5"}, "metadata.annotations[chiasm.dev/weight]"),
    ],
)
def test_a_wrong_annotation_is_a_fault(annotations: dict[str, str], path: str, make: Make) -> None:
    (fault,) = review(None, make(annotations)).faults
    assert fault.path == path
    assert fault.message.endswith(".")


@pytest.mark.parametrize(
    ("sections", "path", "words"),
    [
        (
            {"model": with_model(expectedIdentity={"repr.block_size": "32"})},
            "spec.model.expectedIdentity[repr.block_size]",
            "spec.engine.blockSize is 16",
        ),
        (
            {
                "model": with_model(expectedIdentity={"compute.compute_dtype": "float32"}),
                "engine": {"dtype": "bfloat16"},
            },
            "spec.model.expectedIdentity[compute.compute_dtype]",
            "spec.engine.dtype is bfloat16",
        ),
        ({"podTemplate": {"labels": {"a b": "x"}}}, "spec.podTemplate.labels[a b]", "is no key"),
        ({"podTemplate": {"labels": {"a": "-x"}}}, "spec.podTemplate.labels[a]", "'-x' is no"),
        (
            {"podTemplate": {"nodeSelector": {"UP.example/zone": "a"}}},
            "spec.podTemplate.nodeSelector[UP.example/zone]",
            "is no key",
        ),
        (
            {"podTemplate": {"annotations": {"a/b/c": "x"}}},
            "spec.podTemplate.annotations[a/b/c]",
            "is no key",
        ),
        ({"novelty": 1}, "spec.novelty", "is its version the CRD's?"),
    ],
)
def test_what_cel_does_not_see(sections: Any, path: str, words: str, make: Make) -> None:
    (fault,) = review(None, make(**sections)).faults
    assert fault.path == path
    assert words in fault.message


def test_an_annotation_of_a_pod_may_be_any_text(make: Make) -> None:
    assert review(None, make(podTemplate={"annotations": {"a/b": "any text, {}"}})).allowed


def test_an_old_fault_does_not_stop_another_change(make: Make) -> None:
    wrong = {WEIGHT: "500"}
    verdict = review(make(wrong), make(wrong, replicas=3))
    assert verdict.allowed
    assert "(stored like this before)" in verdict.warnings[0]
    assert not review(make(wrong), make({WEIGHT: "501"})).allowed


def test_whatever_is_being_deleted_passes(make: Make) -> None:
    going = make({WEIGHT: "500"}, novelty=1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert review(make(), going).allowed


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"rollout": {"terminationGracePeriodSeconds": 60}}, "longer than 50 s is cut"),
        ({"replicas": 2, "rollout": {"maxUnavailable": 2}}, "all 2 replicas be away at once"),
        ({"replicas": 3, "rollout": {"maxUnavailable": "100%"}}, "all 3 replicas be away at once"),
        (
            {"model": {"source": {"image": {"reference": "example.com/m:1"}}}},
            "write NAME@sha256:DIGEST",
        ),
        (
            {"model": with_model(expectedIdentity={"compute.weights.language": "0" * 64})},
            "a worker image of your own",
        ),
    ],
)
def test_advice_is_given_once(sections: Any, words: str, make: Make) -> None:
    (said,) = review(None, make(**sections)).warnings
    assert words in said
    assert not review(make(**sections), make(**sections)).warnings
    assert review(make(), make(**sections)).warnings == (said,)


def test_what_steps_and_weights_are_told(make: Make) -> None:
    steps = [{"mirror": {"percent": "2.5"}}, {"mirror": {"percent": 10}}, {"setWeight": "5"}]
    # The schema of the present spec may not know steps; advice is read from the manifest alone.
    manifest = make({WEIGHT: "5"}, rollout={"steps": steps})
    said = " ".join(review(make(rollout={"steps": []}), manifest).warnings)
    assert "canary-weight=5 holds the weight" in said
    assert "mirror 10 % of requests: each of those is computed twice" in said


def test_an_action_that_stays_is_told_when_the_spec_changes(make: Make) -> None:
    given = {ACTION: "promote"}
    assert not review(make(), make(given)).warnings
    assert not review(make(given), make(given)).warnings
    (said,) = review(make(given), make(given, replicas=4)).warnings
    assert "kubectl annotate mmi" in said
    assert said.endswith("chiasm.dev/rollout-action-")
    named = {ACTION: "promote:v1-0123456789:again"}
    assert not review(make(named), make(named, replicas=4)).warnings


def test_flux_would_take_the_weight_away(make: Make) -> None:
    def written_by(manager: str) -> dict[str, Any]:
        manifest = make({WEIGHT: "5"})
        field = {"f:metadata": {"f:annotations": {f"f:{WEIGHT}": {}}}}
        manifest["metadata"]["managedFields"] = [
            {"manager": "kustomize-controller", "fieldsV1": {}},
            {"manager": manager, "fieldsV1": field},
        ]
        return manifest

    (said,) = review(make(), written_by("kubectl-annotate")).warnings
    assert "--field-manager=flux-client-side-apply" in said
    assert not review(make(), written_by("flux-client-side-apply")).warnings


def test_one_of_two_faults_can_be_mended_alone(make: Make) -> None:
    both = make(novelty=1, other=2, podTemplate={"labels": {"a b": "x"}})
    verdict = review(both, make(other=2, podTemplate={"labels": {"a b": "x"}}))
    assert verdict.allowed
    assert len(verdict.warnings) == 2
    assert review(both, make(podTemplate={"labels": {"a b": "x"}})).allowed
    assert not review(both, make(other=2, third=3)).allowed


@pytest.mark.parametrize("left", [17, 16, 1])
def test_any_of_many_faults_can_be_taken_away(left: int, make: Make) -> None:
    many = {f"chiasm.dev/canary-wei{number}": "" for number in range(18)}
    fewer = dict(list(many.items())[:left])
    assert review(make(many), make(fewer)).allowed


def request(**more: Any) -> dict[str, Any]:
    body = {"uid": "u", "kind": {"kind": names.KIND}, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}


def test_a_denial_names_path_and_sentence(make: Make) -> None:
    response = answer(request(object=make({WEIGHT: "500"})))["response"]
    assert (response["uid"], response["allowed"]) == ("u", False)
    assert response["status"]["code"] == 422
    assert response["status"]["message"].startswith(f"metadata.annotations[{WEIGHT}]: '500'")


@pytest.mark.parametrize(
    "more",
    [
        {"oldObject": {}, "object": None},
        {"subResource": "status", "object": {"metadata": {"annotations": {WEIGHT: "500"}}}},
        {"kind": {"kind": "Pod"}, "object": {"metadata": {"annotations": {WEIGHT: "500"}}}},
    ],
)
def test_what_is_none_of_our_business_passes(more: dict[str, Any]) -> None:
    assert answer(request(**more))["response"] == {"uid": "u", "allowed": True}


def test_a_long_warning_is_cut_where_the_api_server_would(make: Make) -> None:
    long = make(model={"source": {"image": {"reference": "example.com/" + "m" * 400}}})
    (said,) = answer(request(object=long))["response"]["warnings"]
    assert len(said) == 256


def test_a_denial_is_short_whatever_was_sent(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator has one thread: who may write annotations must not keep it busy with them."""
    searched: list[str] = []
    search = rollout_annotations.get_close_matches

    def counted(word: str, *more: Any, **options: Any) -> list[str]:
        searched.append(word)
        return search(word, *more, **options)

    monkeypatch.setattr(rollout_annotations, "get_close_matches", counted)
    many = {f"chiasm.dev/canary-wei{number}": "" for number in range(9000)}
    wrong = {"labels": {" " * 90_000: "", "a b": "-"}}
    manifest = make({ACTION: "x" * 90_000, **many}, podTemplate=wrong)
    response = answer(request(object=manifest))["response"]
    assert not response["allowed"]
    assert len(response["status"]["message"]) < 8_000
    assert response["status"]["message"].endswith("; and 8992 more.")
    assert len(searched) < 20


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"kind": "Pod"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"},
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": ""}},
    ],
)
def test_anything_else_is_no_review(body: object) -> None:
    with pytest.raises(NotAReview):
        answer(body)
