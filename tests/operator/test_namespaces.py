"""Retired namespaces: running pods are told, none is restarted, and a served one is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.conditions import Reason, Truth
from chiasm_operator import render
from chiasm_operator.reconcile import children, status
from chiasm_operator.reconcile.namespaces import judge
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.render import Target
from chiasm_operator.resource import Manifest

MakeTarget = Callable[..., Target]
IDENTITY = {"computeFingerprint": "c" * 64, "reprFingerprint": "d" * 64}
COMPUTE, REPR, SCOPE, OTHER = ("c" * 16, "d" * 16, "e" * 16, "f" * 16)


def tiers(*retired: str) -> dict[str, Any]:
    return {"host": {"maxBytes": "1Gi"}, "retiredNamespaces": list(retired)}


def named(target: Target) -> dict[tuple[str, str], Manifest]:
    return {(m["kind"], m["metadata"]["name"]): m for m in render.children(target)}


def test_a_retirement_changes_one_config_map_and_nothing_else(make_target: MakeTarget) -> None:
    before, after = (named(make_target(tiers=tiers(*ended))) for ended in ([], [OTHER, COMPUTE]))
    changed = [key for key in before if before[key] != after[key]]
    assert changed == [("ConfigMap", "shelf-reader-namespaces")]
    assert before.keys() == after.keys()
    assert after[changed[0]]["data"] == {"retired": f"{OTHER}\n{COMPUTE}\n"}


def test_only_the_sidecar_mounts_the_list(make_target: MakeTarget) -> None:
    target = make_target(tiers=tiers())
    deployment = named(target)["Deployment", target.revision_name(target.revision)]
    pod = deployment["spec"]["template"]
    (sidecar,), (worker,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    volumes = [v for v in pod["spec"]["volumes"] if v.get("configMap", {}).get("name") ==
               "shelf-reader-namespaces"]  # fmt: skip
    (volume,) = volumes
    mounts = [m for m in sidecar["volumeMounts"] if m["name"] == volume["name"]]
    assert mounts == [
        {"name": volume["name"], "mountPath": "/etc/chiasm-namespaces", "readOnly": True}
    ]
    assert volume["name"] not in {m["name"] for m in worker["volumeMounts"]}


def test_without_tiers_there_is_neither_list_nor_condition(make_target: MakeTarget) -> None:
    target = make_target()
    assert ("ConfigMap", "shelf-reader-namespaces") not in named(target)
    assert judge(target, IDENTITY) is None


@pytest.mark.parametrize("prefix", [COMPUTE, f"{COMPUTE}-{REPR}"])
def test_what_is_served_and_retired_is_named(make_target: MakeTarget, prefix: str) -> None:
    finding = judge(make_target(tiers=tiers(OTHER, prefix)), IDENTITY)
    assert finding is not None
    assert (finding.status, finding.reason) == (Truth.FALSE, Reason.SERVED_NAMESPACE_RETIRED)
    assert f"names {prefix}," in finding.message
    assert "every request is computed anew" in finding.message
    assert "take the entry out" in finding.message


def test_a_tenant_s_namespace_says_that_it_is_one_tenant_s(make_target: MakeTarget) -> None:
    finding = judge(make_target(tiers=tiers(f"{COMPUTE}-{REPR}-{SCOPE}")), IDENTITY)
    assert finding is not None
    assert finding.reason is Reason.SERVED_NAMESPACE_RETIRED
    assert "every request of 1 of its tenants" in finding.message


@pytest.mark.parametrize("prefix", [OTHER, f"{COMPUTE}-{OTHER}", f"{OTHER}-{REPR}"])
def test_what_others_served_is_no_fault(make_target: MakeTarget, prefix: str) -> None:
    finding = judge(make_target(tiers=tiers(prefix)), IDENTITY)
    assert finding is not None
    assert (finding.status, finding.reason) == (Truth.TRUE, Reason.NAMESPACE_OPEN)


def test_a_pass_says_it_once_as_a_warning_and_the_pods_serve_on(
    make_target: MakeTarget,
    make_observed: Callable[..., Observed],
    make_pod: Callable[..., dict[str, Any]],
    make_state: Callable[..., Any],
    decided: Callable[..., Any],
    wanted: Callable[..., Any],
) -> None:
    def outcome(**more: Any) -> status.Outcome:
        target = make_target(replicas=1, tiers=tiers(COMPUTE), **more)
        states = {"pod-1": make_state(dtype="float32")}
        observed = make_observed(target, make_pod(target, ready=True), states=states)
        decision = decided(target, observed)
        plan = children.plan(target, wanted(target, observed), observed, decision)
        return status.outcome(target, observed, decision, plan, (), "2026-01-01T00:00:00Z")

    first = outcome()
    (event,) = [e for e in first.events if e.reason is Reason.SERVED_NAMESPACE_RETIRED]
    assert event.warning
    said = {c["type"]: (c["status"], c["reason"]) for c in first.status["conditions"]}
    assert said["TiersUsable"] == ("False", "ServedNamespaceRetired")
    assert said["Ready"] == ("True", "AllReplicasReady")
    assert first.status["phase"] == "Healthy"
    assert outcome(status=first.status).events == ()
