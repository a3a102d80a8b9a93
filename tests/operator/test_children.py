"""Which children are applied, deleted, waited for or left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_contract.conditions import Reason
from chiasm_operator.cluster import CHILD_KINDS, PERMISSIONS, PRUNED_KINDS
from chiasm_operator.reconcile import children
from chiasm_operator.reconcile.observed import Observed, key_of
from chiasm_operator.reconcile.ownership import Owner, owner
from chiasm_operator.render import Target

MakeTarget = Callable[..., Target]
MakeObserved = Callable[..., Observed]


def plan(target: Target, observed: Observed) -> children.ChildPlan:
    return children.plan(target, children.desired(target), observed)


def with_child(observed: Observed, kind: str, change: Callable[[Any], None]) -> Observed:
    changed = []
    for item in observed.children:
        copied = copy.deepcopy(dict(item))
        if item["kind"] == kind:
            change(copied)
        changed.append(copied)
    return replace(observed, children=tuple(changed))


def test_all_is_created_in_order(make_target: MakeTarget) -> None:
    done = plan(make_target(), Observed())
    assert [item["kind"] for item in done.apply] == [
        "ServiceAccount",
        "ConfigMap",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "Deployment",
    ]


def test_nothing_is_done_twice(make_target: MakeTarget, make_observed: MakeObserved) -> None:
    target = make_target()
    assert plan(target, make_observed(target)) == children.ChildPlan()


def test_a_change_by_hand_is_healed(make_target: MakeTarget, make_observed: MakeObserved) -> None:
    target = make_target()
    scaled = with_child(
        make_observed(target), "Deployment", lambda item: item["spec"].update(replicas=9)
    )
    assert [item["kind"] for item in plan(target, scaled).apply] == ["Deployment"]


def test_what_is_no_longer_wanted_is_deleted(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    observed = make_observed(make_target())
    single = make_target(replicas=1)
    assert plan(single, observed).delete == (("PodDisruptionBudget", "shelf-reader"),)


def test_the_service_of_peers_goes_with_them(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    peers = {"secret": {"name": "peers", "key": "secret"}}
    observed = make_observed(make_target(tiers={"host": {"maxBytes": "64Mi"}, "peers": peers}))
    without = make_target(tiers={"host": {"maxBytes": "64Mi"}})
    assert plan(without, observed).delete == (("Service", "shelf-reader-peers"),)


def test_a_foreign_object_is_never_touched(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()

    def foreign(item: Any) -> None:
        item["metadata"].pop("ownerReferences")
        item["metadata"]["labels"] = {}

    done = plan(target, with_child(make_observed(target), "Service", foreign))
    assert done.apply == ()
    assert done.delete == ()
    (problem,) = done.problems
    assert problem.reason is Reason.NAME_TAKEN
    assert "Service 'shelf-reader' exists and belongs to somebody else" in problem.message


@pytest.mark.parametrize(
    "change",
    [
        lambda item: item["metadata"]["ownerReferences"][0].update(uid="of-the-deleted-one"),
        lambda item: item["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["leftover", "terminating"],
)
def test_what_is_going_is_waited_for(
    change: Callable[[Any], None], make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    done = plan(target, with_child(make_observed(target), "Service", change))
    assert (done.apply, done.delete, done.problems) == ((), (), ())
    assert done.waiting == (("Service", "shelf-reader"),)


def test_an_orphan_of_ours_is_adopted(make_target: MakeTarget, make_observed: MakeObserved) -> None:
    target = make_target()
    orphaned = with_child(
        make_observed(target), "Service", lambda item: item["metadata"].pop("ownerReferences")
    )
    assert [item["kind"] for item in plan(target, orphaned).apply] == ["Service"]


def test_owner_by_another_kind_is_foreign(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    service = copy.deepcopy(dict(make_observed(target).child("Service", "shelf-reader") or {}))
    service["metadata"]["ownerReferences"][0].update(kind="Gateway", uid="other")
    assert owner(service, target.resource) is Owner.FOREIGN


def old_config(target: Target) -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "metadata": target.metadata("shelf-reader-v1-old", labels={names.LABEL_REVISION: "v1-old"}),
    }


def test_an_old_config_stays_while_a_pod_may_need_it(
    make_target: MakeTarget, make_observed: MakeObserved, make_pod: Callable[..., Any]
) -> None:
    target = make_target()
    calm = make_observed(target)
    with_old = replace(calm, children=(*calm.children, old_config(target)))
    key = key_of(old_config(target))
    assert plan(target, with_old).delete == (key,)

    old_pod = make_pod(target, revision="v1-old", ready=True)
    assert plan(target, replace(with_old, pods=(old_pod,))).delete == ()

    rolling = with_child(with_old, "Deployment", lambda item: item["status"].update(replicas=3))
    assert plan(target, rolling).delete == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda item: item["metadata"]["labels"].update({names.LABEL_REVISION: "v1-old"}),
        lambda item: item["metadata"].update(generation=2),
        lambda item: item["status"].update(updatedReplicas=1),
        lambda item: item["status"].update(conditions=[]),
        lambda item: item.pop("status"),
    ],
    ids=["old revision", "not observed", "not updated", "not progressed", "no status"],
)
def test_a_rollout_under_way_is_not_complete(
    change: Callable[[Any], None], make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = make_observed(target)
    assert children.rollout_complete(target, observed)
    assert not children.rollout_complete(target, with_child(observed, "Deployment", change))
    assert not children.rollout_complete(target, Observed())


def test_what_may_not_be_deleted_is_never_planned_for_it(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = make_observed(target)
    for kind in (kind for kind in CHILD_KINDS if kind.kind not in PRUNED_KINDS):
        assert "delete" not in PERMISSIONS[kind.group, kind.plural]
        second = copy.deepcopy(observed.child(kind.kind, target.name))
        assert second is not None
        second["metadata"]["name"] = "second"
        more = replace(observed, children=(*observed.children, second))
        assert plan(target, more).delete == ()
