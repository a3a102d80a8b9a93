"""A revision is another one exactly when pods must change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from chiasm_contract import builtin_models
from chiasm_operator import render
from chiasm_operator.render import Target
from chiasm_operator.render import target as target_module


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
