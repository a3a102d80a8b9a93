"""Which children are applied, deleted, waited for or left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_contract.conditions import Reason
from chiasm_operator.cluster import CHILD_KINDS, PERMISSIONS, PRUNED_KINDS
from chiasm_operator.reconcile import children
from chiasm_operator.reconcile.observed import Observed, key_of
from chiasm_operator.reconcile.ownership import Owner, owner
from chiasm_operator.reconcile.rollout import Asked, Decision, decide, look
from chiasm_operator.render import Target
from chiasm_operator.render.revision import record_of
from chiasm_operator.render.traffic import address

MakeTarget = Callable[..., Target]
MakeObserved = Callable[..., Observed]


def plan(target: Target, observed: Observed) -> children.ChildPlan:
    decision = decision_of(target, observed)
    wanted = children.desired(target, record_of(target), observed, decision)
    return children.plan(target, wanted, observed, decision)


def decision_of(target: Target, observed: Observed) -> Decision:
    return decide(Asked.of(target), look(target, observed), partial(address, target), 0)


def with_child(
    observed: Observed, kind: str, change: Callable[[Any], None], name: str = ""
) -> Observed:
    """Changed by somebody: the one of that kind, which for a Service is that for clients."""
    changed = []
    wanted = name or ("shelf-reader" if kind == "Service" else "")
    for item in observed.children:
        copied = copy.deepcopy(dict(item))
        if item["kind"] == kind and wanted in ("", item["metadata"]["name"]):
            change(copied)
        changed.append(copied)
    return replace(observed, children=tuple(changed))


def test_all_is_created_in_order(make_target: MakeTarget) -> None:
    done = plan(make_target(), Observed())
    assert [item["kind"] for item in done.apply] == [
        "ServiceAccount",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ControllerRevision",
        "ConfigMap",
        "Service",
        "Deployment",
        "ConfigMap",
        "Service",
    ], "what is named comes before what names it"


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


def of_old_revision(target: Target, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": target.revision_metadata("v1-old"),
        "spec": {"replicas": 0, "template": {}},
    }


def test_what_an_old_revision_had_stays_while_a_pod_may_need_it(
    make_target: MakeTarget, make_observed: MakeObserved, make_pod: Callable[..., Any]
) -> None:
    target = make_target()
    calm = make_observed(target)
    old = [of_old_revision(target, kind) for kind in ("ConfigMap", "Service", "Deployment")]
    with_old = replace(calm, children=(*calm.children, *old))
    assert set(plan(target, with_old).delete) == {key_of(item) for item in old}

    old_pod = make_pod(target, revision="v1-old", ready=True)
    assert plan(target, replace(with_old, pods=(old_pod,))).delete == ()


def test_a_deployment_of_all_revisions_serves_until_its_successor_can(
    make_target: MakeTarget, make_observed: MakeObserved, make_pod: Callable[..., Any]
) -> None:
    """As an older version of the operator made it."""
    target = make_target()
    legacy = {
        "kind": "Deployment",
        "metadata": target.metadata(labels={names.LABEL_REVISION: "v1-old"}),
        "spec": {"replicas": 2},
    }
    before = Observed(children=(legacy,))
    assert ("Service", target.name) not in [key_of(item) for item in plan(target, before).apply]
    pods = [make_pod(target, name, ready=True) for name in ("pod-1", "pod-2")]
    there = replace(make_observed(target, *pods), pods=tuple(pods))
    both = replace(there, children=(*there.children, legacy))
    assert plan(target, both).delete == (key_of(legacy),)


def test_history_is_kept_for_a_while(make_target: MakeTarget, make_observed: MakeObserved) -> None:
    target = make_target()
    calm = make_observed(target)
    own = calm.child("ControllerRevision", target.revision_name(target.revision)) or {}
    older = []
    for number in range(12):
        item = copy.deepcopy(dict(own))
        item["metadata"] = target.revision_metadata(f"v1-{number}")
        item["revision"] = number - 20
        older.append(item)
    delete = plan(target, replace(calm, children=(*calm.children, *older))).delete
    assert delete == tuple(key_of(item) for item in older[:3])


def test_a_newer_operator_changes_no_pod(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    """Whose templates differ from those that were rendered when the revision came into being."""
    target = make_target()

    def older(item: Any) -> None:
        if item["kind"] == "ControllerRevision":
            item["data"]["template"]["spec"]["terminationGracePeriodSeconds"] = 77
            item["data"]["files"]["worker.json"] = "{}"
        if item["kind"] == "Deployment":
            item["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 77

    observed = make_observed(target)
    for kind in ("ControllerRevision", "Deployment"):
        observed = with_child(observed, kind, older)
    for manifest in plan(target, observed).apply:
        if manifest["kind"] == "Deployment":
            template = manifest["spec"]["template"]["spec"]
            assert template["terminationGracePeriodSeconds"] == 77
    data = {
        item["metadata"]["name"]: item["data"]
        for item in plan(target, observed).apply
        if item["kind"] == "ConfigMap"
    }
    assert data[target.revision_name(target.revision)]["worker.json"] == "{}"


def test_a_lost_record_is_read_from_the_pods(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = with_child(
        make_observed(target),
        "Deployment",
        lambda item: item["spec"]["template"]["spec"].update(terminationGracePeriodSeconds=77),
    )
    without = tuple(item for item in observed.children if item["kind"] != "ControllerRevision")
    applied = plan(target, replace(observed, children=without)).apply
    (record,) = (item for item in applied if item["kind"] == "ControllerRevision")
    assert record["data"]["template"]["spec"]["terminationGracePeriodSeconds"] == 77
    assert record["data"]["spec"] == {"model": {"source": {"builtin": "demo"}}}


@pytest.mark.parametrize(
    "change",
    [
        lambda item: item["metadata"].update(generation=2),
        lambda item: item["status"].update(updatedReplicas=1),
        lambda item: item["status"].update(conditions=[]),
        lambda item: item.pop("status"),
    ],
    ids=["not observed", "not updated", "not progressed", "no status"],
)
def test_a_deployment_at_work_is_not_settled(
    change: Callable[[Any], None], make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = make_observed(target)
    assert children.deployment_settled(target, observed)
    assert not children.deployment_settled(target, with_child(observed, "Deployment", change))
    assert not children.deployment_settled(target, Observed())


def test_a_restart_is_asked_for_once(make_target: MakeTarget, make_observed: MakeObserved) -> None:
    def restarted(target: Target, observed: Observed) -> Any:
        decision = decision_of(target, observed)
        wanted = children.desired(target, record_of(target), observed, decision)
        (deployment,) = (item for item in wanted if item["kind"] == "Deployment")
        annotations = deployment["spec"]["template"]["metadata"]["annotations"]
        return annotations.get(names.ANNOTATION_RESTARTED_AT)

    target = make_target()
    observed = make_observed(target)
    assert restarted(target, observed) is None
    asked = replace(
        target,
        resource=replace(target.resource, annotations={names.ANNOTATION_RESTARTED_AT: "noon"}),
    )
    assert restarted(asked, observed) == "noon"
    done = make_observed(asked)
    assert restarted(target, done) == "noon", "an annotation that is gone restarts nothing"


def test_what_may_not_be_deleted_is_never_planned_for_it(
    make_target: MakeTarget, make_observed: MakeObserved
) -> None:
    target = make_target()
    observed = make_observed(target)
    for kind in (kind for kind in CHILD_KINDS if kind.kind not in PRUNED_KINDS):
        assert "delete" not in PERMISSIONS[kind.group, kind.plural]
        second: Any = copy.deepcopy(observed.child(kind.kind, target.name))
        second["metadata"]["name"] = "second"
        more = replace(observed, children=(*observed.children, second))
        assert plan(target, more).delete == ()
