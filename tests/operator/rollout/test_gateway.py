"""A rollout whose share a Gateway keeps: nothing goes on before the Gateway has taken the route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from chiasm_operator.api import Refused
from chiasm_operator.render.route import ROUTE

from tests.operator.rollout.made_up.scenarios import Stage, both, note
from tests.operator.rollout.made_up.world import NAME, World

GATEWAY = {"parentRefs": [{"name": "public"}], "split": "gateway"}


@dataclass
class Routed(World):
    """A world with a Gateway, which takes a route `route_lag` moments late, or never (`deaf`)."""

    route_lag: int = 2
    deaf: bool = False
    api: bool = True
    changed_at: dict[int, int] = field(default_factory=dict)

    @property
    def route(self) -> dict[str, Any]:
        return self.objects[ROUTE, NAME]

    @property
    def weights(self) -> list[int]:
        return [item.get("weight", 1) for item in self.route["spec"]["rules"][0]["backendRefs"]]

    def tick(self) -> None:
        super().tick()
        live = self.objects.get((ROUTE, NAME))
        if live is None or self.deaf:
            return
        generation = live["metadata"]["generation"]
        since = self.changed_at.setdefault(generation, self.moment)
        if self.moment - since >= self.route_lag:
            said = {"status": "True", "reason": "Accepted", "observedGeneration": generation}
            conditions = [{"type": kind, **said} for kind in ("Accepted", "ResolvedRefs")]
            parent = {"parentRef": {"name": "public"}, "conditions": conditions}
            live["status"] = {"parents": [parent]}

    async def apply(self, manifest: Any) -> None:
        if manifest["kind"] == ROUTE and not self.api:
            raise Refused(404, "the server could not find the requested resource")
        await super().apply(manifest)

    @property
    def taken(self) -> bool:
        """Whether the Gateway goes by the route as it is."""
        conditions = self.route["status"]["parents"][0]["conditions"]
        current = self.route["metadata"]["generation"]
        return all(item["observedGeneration"] == current for item in conditions)


def spec(revision: int, gateway: dict[str, Any] | None = GATEWAY, **rollout: Any) -> Stage:
    def stage(world: World) -> None:
        more = {} if gateway is None else {"gateway": gateway}
        world.apply_spec(replicas=2, engine={"maxNumSeqs": revision}, rollout=rollout, **more)

    return stage


@pytest.fixture
def routed() -> Routed:
    """Revision 1 serves, and a Gateway routes to it."""
    world = Routed()
    spec(1)(world)
    world.settled()
    return world


def test_weights_are_those_of_the_plan_and_are_waited_for(routed: Routed) -> None:
    assert routed.condition("TrafficSynced") == "True PlanAcknowledged"
    assert routed.condition("RouteAccepted") == "True RouteFollowed"
    both(spec(2), note(canary_weight="20"))(routed)
    routed.live(30, lambda: routed.share == 2000)
    assert routed.weights == [8000, 2000]
    assert not routed.taken
    routed.live(1)
    assert routed.condition("TrafficSynced").startswith("False")
    routed.settled()
    assert routed.taken
    assert routed.condition("TrafficSynced") == "True PlanAcknowledged"
    assert routed.plan is not None
    assert routed.plan.divided_by == "gateway"
    note(canary_weight="0")(routed)
    routed.settled()
    assert routed.weights == [10_000, 0]


def test_promotion_waits_for_the_gateway(routed: Routed) -> None:
    old = routed.pointer
    spec(2, steps=[{"setWeight": 50}])(routed)
    routed.deaf = True
    routed.live(40)
    assert routed.pointer == old, "half was never reached"
    assert routed.condition("TrafficSynced") == "False RouteNotFollowed"
    assert "RouteAccepted" in routed.rollout["message"]
    routed.deaf = False
    routed.settled()
    assert routed.pointer == routed.revision != old
    (only,) = routed.route["spec"]["rules"][0]["backendRefs"]
    assert only["name"] == f"{NAME}-{routed.revision}"


def test_pods_stay_until_the_gateway_sends_them_nothing(routed: Routed) -> None:
    both(spec(2), note(canary_weight="50"))(routed)
    routed.settled()
    canary = routed.revision
    routed.deaf = True
    note(rollout_action="abort")(routed)
    routed.live(60)
    assert routed.plan is not None
    assert routed.plan.canary is None, "the sidecars take everything back at once"
    assert routed.replicas(canary) > 0
    routed.deaf = False
    routed.settled()
    assert routed.replicas(canary) == 0
    assert routed.state == "Aborted"


def test_kuberay_4601_a_changed_mind_takes_the_route_back_once(routed: Routed) -> None:
    """A rollback locked up half way, and its HTTPRoute was written without end."""
    first = routed.pointer
    spec(2, steps=[{"setWeight": 50}, {"pause": {}}])(routed)
    routed.live(30, lambda: routed.weights == [5000, 5000])
    spec(1)(routed)
    routed.settled()
    assert routed.pointer == first
    (only,) = routed.route["spec"]["rules"][0]["backendRefs"]
    assert only["name"] == f"{NAME}-{first}"
    writes = len(routed.writes)
    routed.live(20)
    assert routed.writes[writes:] == []


def test_a_canary_that_clients_reach_must_follow_too(routed: Routed) -> None:
    both(spec(2), note(canary_weight="50"))(routed)
    routed.live(30, lambda: routed.share == 5000)
    routed.settled()
    (first, *_) = routed.ready(routed.revision)
    assert first.plan is not None
    first.plan = first.plan.model_copy(update={"epoch": 1})
    routed.live(1)
    assert routed.condition("TrafficSynced") == "False PlanNotAcknowledged"


def test_a_route_goes_with_its_section(routed: Routed) -> None:
    spec(1, gateway=None)(routed)
    routed.settled()
    assert (ROUTE, NAME) not in routed.objects
    assert routed.condition("Ready").startswith("True")
    assert not [item for item in routed.resource["status"]["conditions"]
                if item["type"] == "RouteAccepted"]  # fmt: skip


def test_who_divides_makes_no_other_revision(routed: Routed) -> None:
    before = routed.revision
    spec(1, gateway={**GATEWAY, "split": "sidecars"})(routed)
    routed.settled()
    assert routed.revision == before
    assert routed.plan is not None
    assert routed.plan.divided_by is None
    assert routed.condition("Ready").startswith("True")


def test_without_the_gateway_api_pods_serve_and_the_condition_says_why() -> None:
    world = Routed(api=False)
    spec(1, gateway={**GATEWAY, "split": "sidecars"})(world)
    world.live(20)
    assert world.condition("Ready") == "True AllReplicasReady"
    assert world.condition("RouteAccepted") == "False GatewayApiNotInstalled"
    assert "GatewayApiNotInstalled" in world.reasons()
    assert world.condition("Degraded").startswith("False")
    world.api = True
    world.settled()
    assert world.condition("RouteAccepted") == "True RouteFollowed"
