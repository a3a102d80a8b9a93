"""What Gateways say of the route, as a condition and as the plan that they follow."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.traffic import Override, TrafficPlan, Version
from chiasm_operator.reconcile import routing
from chiasm_operator.reconcile.diagnosis.refusals import NOT_INSTALLED
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.render import Target, route

PARENTS = [{"name": "public", "namespace": "gateways", "sectionName": "http"}, {"name": "inner"}]
GENERATION = 4


def plan(**fields: Any) -> TrafficPlan:
    given: dict[str, Any] = {
        "epoch": 7,
        "window": 7,
        "stable": Version(revision="v1-a", address="a:1"),
        "canary": Version(revision="v1-b", address="b:1"),
        "share": 2000,
    }
    return TrafficPlan(**(given | fields))


@pytest.fixture
def target(make_target: Callable[..., Target]) -> Target:
    return make_target(gateway={"parentRefs": PARENTS, "split": "gateway"})


def rules(target: Target, **fields: Any) -> list[dict[str, Any]]:
    made = route.render(target, plan(**fields))
    assert made is not None
    found: list[dict[str, Any]] = made["spec"]["rules"]
    return found


def told(target: Target, *parents: dict[str, Any], **conditions: Any) -> Observed:
    """The route as it is, and what its controllers say."""
    live: Any = copy.deepcopy(route.render(target, plan()))
    live["metadata"]["generation"] = GENERATION
    said = {"Accepted": "True", "ResolvedRefs": "True"} | conditions
    live["status"] = {
        "parents": [
            {
                "parentRef": parent,
                "conditions": [
                    {
                        "type": kind,
                        "status": status,
                        "reason": "NotAllowedByListeners" if status == "False" else kind,
                        "message": "No listener takes it.",
                        "observedGeneration": GENERATION,
                    }
                    for kind, status in said.items()
                ],
            }
            for parent in parents
        ]
    }
    return Observed((live,))


def judged(target: Target, observed: Observed) -> tuple[str, str, str]:
    finding = routing.judge(target, observed, ())
    assert finding is not None
    return finding.status.value, finding.reason.value, finding.message


def test_both_revisions_have_their_weight_and_are_told_that_it_is_kept(target: Target) -> None:
    (only,) = rules(target)
    stable, canary = only["backendRefs"]
    assert [(item["name"], item["weight"]) for item in (stable, canary)] == [
        ("shelf-reader-v1-a", 8000),
        ("shelf-reader-v1-b", 2000),
    ]
    assert only["filters"][0]["requestHeaderModifier"] == {
        "set": [{"name": "x-chiasm-route", "value": "gateway"}],
        "remove": ["x-chiasm-revision"],
    }
    assert only["timeouts"] == {"request": "605s"}


def test_what_proxies_name_by_its_place_stays_in_its_place(target: Target) -> None:
    """A rule that moves, or a backend with filters, is for a moment not found where it is asked."""
    for fields in ({}, {"override": Override(header="x-canary")}, {"canary": None, "share": 0}):
        first, *others = rules(target, **fields)
        assert "matches" not in first
        assert all("matches" in rule for rule in others)
        for rule in (first, *others):
            assert not any("filters" in backend for backend in rule["backendRefs"])


def test_a_header_chooses_whatever_the_weights(target: Target) -> None:
    by_weight, always, never = rules(target, override=Override(header="x-canary"))
    for rule, value, name in ((always, "always", "v1-b"), (never, "never", "v1-a")):
        assert rule["matches"] == [{"headers": [{"name": "x-canary", "value": value}]}]
        assert [item["name"] for item in rule["backendRefs"]] == [f"shelf-reader-{name}"]
    assert len(by_weight["backendRefs"]) == 2
    _, chosen = rules(target, override=Override(header="x-canary", header_value="me"))
    assert chosen["matches"][0]["headers"] == [{"name": "x-canary", "value": "me"}]


def test_without_a_canary_all_is_stables(target: Target) -> None:
    (only,) = rules(target, canary=None, share=0)
    assert [item["name"] for item in only["backendRefs"]] == ["shelf-reader-v1-a"]


def test_where_sidecars_divide_the_route_never_changes(make_target: Callable[..., Target]) -> None:
    target = make_target(gateway={"parentRefs": PARENTS, "hostnames": ["a.example"]})
    made = route.render(target, plan())
    assert made == route.render(target, plan(epoch=8, share=5000, canary=None))
    assert made is not None
    (only,) = made["spec"]["rules"]
    assert only["backendRefs"] == [{"name": "shelf-reader", "port": 8000}]
    removed = only["filters"][0]["requestHeaderModifier"]["remove"]
    assert removed == ["x-chiasm-revision", "x-chiasm-route"]
    assert made["spec"]["hostnames"] == ["a.example"]
    assert routing.epoch(target, told(target, *PARENTS)) is None


def test_a_route_is_followed_when_every_gateway_took_it(target: Target) -> None:
    observed = told(target, *PARENTS)
    assert judged(target, observed)[:2] == ("True", "RouteFollowed")
    assert routing.epoch(target, observed) == 7


def test_the_namespace_of_the_resource_may_be_said(target: Target) -> None:
    observed = told(target, PARENTS[0], {"name": "inner", "namespace": "vision"})
    assert routing.epoch(target, observed) == 7


@pytest.mark.parametrize("changed", ["generation", "listener", "silent", "gone"])
def test_what_was_not_taken_as_it_is_now_is_waited_for(changed: str, target: Target) -> None:
    observed = told(target, PARENTS[0], *([] if changed == "silent" else [PARENTS[1]]))
    live: Any = observed.children[0]
    if changed == "generation":
        live["metadata"]["generation"] += 1
    if changed == "listener":
        live["status"]["parents"][0]["parentRef"] = {**PARENTS[0], "sectionName": "https"}
    if changed == "gone":
        observed = Observed()
    status, reason, message = judged(target, observed)
    assert (status, reason) == ("False", "RouteNotFollowed")
    assert "yet" in message
    assert routing.epoch(target, observed) == 0


@pytest.mark.parametrize("kind", ["Accepted", "ResolvedRefs"])
def test_a_refusal_is_told_with_what_to_do(kind: str, target: Target) -> None:
    observed = told(target, *PARENTS, **{kind: "False"})
    status, reason, message = judged(target, observed)
    assert (status, reason) == ("False", "RouteRefused")
    assert message == (
        "Gateway gateways/public refuses HTTPRoute 'shelf-reader': NotAllowedByListeners: No "
        "listener takes it. Let the listener's allowedRoutes take routes of this namespace."
    )
    assert routing.epoch(target, observed) == 0


def test_a_users_route_of_this_name_is_not_ours(target: Target) -> None:
    observed = told(target, *PARENTS)
    live: Any = observed.children[0]
    live["metadata"]["ownerReferences"] = []
    live["metadata"]["labels"] = {}
    assert routing.epoch(target, observed) == 0


def test_without_the_gateway_api_the_condition_says_what_to_install(target: Target) -> None:
    finding = routing.judge(target, Observed(), (NOT_INSTALLED[route.ROUTE],))
    assert finding is not None
    assert finding.reason.value == "GatewayApiNotInstalled"
    assert "install its CRDs" in finding.message


def test_without_a_gateway_nothing_is_said(make_target: Callable[..., Target]) -> None:
    assert routing.judge(make_target(), Observed(), ()) is None
    assert route.render(make_target(), plan()) is None
