"""Every field of `spec.rollout` that is not rendered into pods or Deployments does something."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chiasm_contract import instants
from chiasm_contract.api.rollout import Rollout
from pydantic import BaseModel, ValidationError

from tests.operator.rollout.made_up.limits import LIMITS, LOOK
from tests.operator.rollout.made_up.scenarios import count, note, spec
from tests.operator.rollout.made_up.world import World

Check = Callable[[World], None]
CHECKS: dict[str, Check] = {}


def field(path: str) -> Callable[[Check], Check]:
    def keep(check: Check) -> Check:
        CHECKS[path] = check
        return check

    return keep


def seconds(world: World, since: str, until: str) -> int:
    return instants.to_seconds(world.rollout[until]) - instants.to_seconds(world.rollout[since])


@field("steps.setWeight")
def weight(world: World) -> None:
    spec(2, steps=[{"setWeight": "2.5"}, {"pause": {}}])(world)
    world.settled()
    assert world.share == 250


@field("steps.pause.seconds")
def pause(world: World) -> None:
    spec(2, steps=[{"pause": {"seconds": 34}}])(world)
    world.live(5, lambda: world.state == "Paused")
    assert seconds(world, "stepBegan", "stepDeadline") == 34
    world.live(16)
    assert world.share == 0
    world.settled()
    assert world.pointer == world.revision


@field("steps.setCanaryScale.replicas")
def scale(world: World) -> None:
    spec(2, steps=[{"setCanaryScale": {"replicas": 2}}, {"pause": {}}])(world)
    world.settled()
    assert (world.replicas(world.revision), world.share) == (2, 0)


@field("steps.mirror.percent")
def mirror(world: World) -> None:
    spec(2, steps=[{"mirror": {"percent": "1.5"}}, {"pause": {}}])(world)
    world.settled()
    assert world.plan is not None
    assert (world.plan.mirror, world.share) == (150, 0)


@field("steps.analysis.seconds")
def analysis_seconds(world: World) -> None:
    count(0)(world)
    spec(2, steps=LOOK)(world)
    world.live(30, lambda: world.state == "Verifying")
    assert seconds(world, "stepBegan", "stepDeadline") == 20
    world.settled()
    assert world.rollout["currentStep"] == 2


@field("paused")
def paused(world: World) -> None:
    spec(2, paused=True)(world)
    world.settled()
    assert world.condition("Paused") == "True PausedBySpec"
    assert world.replicas(world.revision) == 0
    spec(2)(world)
    world.settled()
    assert world.pointer == world.revision


@field("sticky.mode")
def mode(world: World) -> None:
    assert world.plan is not None
    assert world.plan.sticky
    spec(1, sticky={"mode": "none"})(world)
    world.settled()
    assert not world.plan.sticky


@field("sticky.ttlSeconds")
def ttl(world: World) -> None:
    spec(1, sticky={"ttlSeconds": 77})(world)
    world.settled()
    assert world.plan is not None
    assert world.plan.sticky_seconds == 77


@field("sticky.onAbort")
def on_abort(world: World) -> None:
    spec(2, sticky={"onAbort": "drain", "ttlSeconds": 100}, abort={"scaleDownDelaySeconds": 10})(
        world
    )
    note(canary_weight="50")(world)
    world.settled()
    note(rollout_action="abort")(world)
    world.live(40)
    assert world.plan is not None
    assert world.plan.canary is not None, "conversations go on there"
    assert (world.share, world.replicas(world.revision)) == (0, 2)
    world.settled()
    assert world.plan.canary is None
    assert world.state == "Aborted"


@field("abort.scaleDownDelaySeconds")
def delay(world: World) -> None:
    spec(2, abort={"scaleDownDelaySeconds": 60})(world)
    note(canary_weight="50")(world)
    world.settled()
    world.lag = 20
    note(rollout_action="abort")(world)
    world.live(20)
    assert world.rollout["leaving"] == [], "some still send there"
    world.live(30)
    assert world.replicas(world.revision) == 2
    world.live(6)
    assert world.replicas(world.revision) == 0


def warm(world: World) -> list[str]:
    return [item["revision"] for item in world.rollout["leaving"] if item["why"] == "warm"]


@field("rollbackWindow.seconds")
def window_seconds(world: World) -> None:
    first = world.pointer or ""
    spec(2, rollbackWindow={"seconds": 40})(world)
    world.live(60, lambda: world.pointer == world.revision)
    world.live(18)
    assert world.replicas(first) == 3
    world.live(4)
    assert world.replicas(first) == 0


@field("rollbackWindow.replicas")
def window_replicas(world: World) -> None:
    first = world.pointer or ""
    spec(2, rollbackWindow={"seconds": 400, "replicas": "34%"})(world)
    world.live(60, lambda: world.pointer == world.revision)
    world.live(5)
    assert world.replicas(first) == 2


@pytest.mark.parametrize(("replicas", "pods"), [(0, 0), ("0%", 0), (50, 3)])
def test_a_window_keeps_what_is_asked_and_never_more(
    replicas: int | str, pods: int, served: World
) -> None:
    """A window without pods was over at once, one with many brought up new ones."""
    first = served.pointer or ""
    window = {"seconds": 400, "replicas": replicas}
    spec(2, rollbackWindow=window, steps=[{"pause": {"seconds": 2}}])(served)
    served.live(60, lambda: served.pointer == served.revision)
    served.live(20)
    assert (warm(served), served.replicas(first)) == ([first], pods)
    spec(1, rollbackWindow=window, steps=[{"pause": {}}])(served)
    served.live(60, lambda: served.pointer == first)  # passes no steps


@pytest.mark.parametrize("name", ["maxSurge", "maxUnavailable"])
def test_no_number_of_pods_is_negative(name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        Rollout.model_validate({name: -1})
    with pytest.raises(ValidationError, match="replicas"):
        Rollout.model_validate({"rollbackWindow": {"replicas": -1}})


@field("rollbackWindow.revisions")
def window_revisions(world: World) -> None:
    seen = [world.pointer or ""]
    for number in (2, 3, 4):
        spec(number, rollbackWindow={"seconds": 4000, "revisions": 2})(world)
        world.live(60, lambda: world.pointer == world.revision)
        world.live(5)
        seen.append(world.revision)
    assert warm(world) == seen[1:3]
    assert world.replicas(seen[0]) == 0


@field("analysis.intervalSeconds")
def interval(world: World) -> None:
    spec(2, steps=LOOK, analysis={"intervalSeconds": 6})(world)
    world.live(30, lambda: world.state == "Verifying")
    assert seconds(world, "stepBegan", "nextLook") == 6


@field("analysis.minSamples")
def samples(world: World) -> None:
    count(0)(world)  # 200 in each of four sidecars
    spec(2, steps=LOOK, analysis={"minSamples": 801})(world)
    world.live(60)
    assert world.state == "Verifying"
    assert world.condition("AnalysisHealthy") == "Unknown TooFewSamples"
    spec(2, steps=LOOK, analysis={"minSamples": 800})(world)
    world.settled()
    assert world.rollout["currentStep"] == 2
    assert world.condition("AnalysisHealthy") == "True NotWorse"


@field("analysis.failureLimit")
def limit(world: World) -> None:
    count(90)(world)
    spec(2, steps=LOOK, analysis={"failureLimit": 3, "intervalSeconds": 4})(world)
    world.live(40, lambda: world.state in {"Aborting", "Aborted"})
    looks = [instants.to_seconds(world.now) - instants.to_seconds(world.rollout["stepBegan"])]
    assert looks == [16], "three faults are borne, the fourth is one too many"
    assert world.condition("AnalysisHealthy") == "False ErrorRate"


def test_only_faults_in_a_row_abort(served: World) -> None:
    """Nine good looks of ten were no help: the tenth bad one of a long step aborted."""
    steps = [{"setWeight": 5}, {"analysis": {"seconds": 3600}}]
    count(90)(served)
    spec(2, steps=steps, analysis={"failureLimit": 1, "intervalSeconds": 2})(served)
    served.live(40, lambda: served.rollout.get("failedLooks") == 1)
    served.counts = {}  # a look without data says nothing, for or against
    served.live(3)
    assert served.rollout["failedLooks"] == 1
    count(0)(served)
    served.live(3)
    assert served.rollout["failedLooks"] == 0
    count(90)(served)
    served.live(40, lambda: served.rollout.get("failedLooks") == 1)
    assert served.rollout.get("abortedRevision") is None
    served.live(40, lambda: served.rollout.get("abortedRevision") is not None)


@field("analysis.onNoData")
def no_data(world: World) -> None:
    policy = {"intervalSeconds": 4, "noDataDeadlineSeconds": 40}
    spec(2, steps=LOOK, analysis={**policy, "onNoData": "skip"})(world)
    world.settled()
    assert world.rollout["currentStep"] == 2, "skip goes on at the end of the step"
    spec(3, steps=LOOK, analysis={**policy, "onNoData": "fail"})(world)
    world.settled()
    assert world.state == "Aborted"
    spec(4, steps=LOOK, analysis=policy)(world)
    world.live(60)
    assert world.condition("Paused") == "True AnalysisInconclusive"
    assert "AnalysisInconclusive" in world.reasons()
    note(rollout_action="resume")(world)
    world.live(3)
    assert world.rollout["currentStep"] == 2


@field("analysis.noDataDeadlineSeconds")
def no_data_deadline(world: World) -> None:
    policy = {"intervalSeconds": 4, "noDataDeadlineSeconds": 40}
    spec(2, steps=LOOK, analysis=policy)(world)
    world.live(60, lambda: world.state == "Paused")
    waited = instants.to_seconds(world.now) - instants.to_seconds(world.rollout["stepBegan"])
    assert waited == 40


def leaves(model: type[BaseModel], path: str = "") -> list[str]:
    """Dotted paths of all fields; a list is its items."""
    found = []
    for name, info in model.model_fields.items():
        here = f"{path}{info.alias or name}"
        inner = [
            each
            for each in (info.annotation, *getattr(info.annotation, "__args__", ()))
            if isinstance(each, type) and issubclass(each, BaseModel)
        ]
        found += leaves(inner[0], f"{here}.") if inner else [here]
    return found


def test_every_field_has_a_check() -> None:
    rendered = {
        "maxSurge", "maxUnavailable", "progressDeadlineSeconds", "drainSeconds",
        "terminationGracePeriodSeconds",
    }  # fmt: skip
    limits = {f"analysis.{name}" for name in LIMITS}  # test_analysis_limits.py
    assert set(leaves(Rollout)) - rendered == set(CHECKS) | limits


@pytest.mark.parametrize("path", sorted(CHECKS))
def test_the_field_does_something(path: str, served: World) -> None:
    CHECKS[path](served)


def test_surge_and_unavailability_are_kept_as_by_a_deployment() -> None:
    for surge, unavailable, total in ((1, 0, 3), (0, 1, 3), (2, 1, 5), (3, 0, 3), (0, 2, 4)):
        world = World(strict=False)
        policy = {"maxSurge": surge, "maxUnavailable": unavailable}
        spec(1, total, **policy)(world)
        world.settled()
        spec(2, total, **policy)(world)
        for _ in range(60):
            world.live(1)
            asked = [
                item["spec"]["replicas"]
                for (kind, _), item in world.objects.items()
                if kind == "Deployment"
            ]
            assert sum(asked) <= total + surge
            ready = [pod for pod in world.all_pods.values() if pod.ready]
            assert len(ready) >= total - unavailable
        assert world.pointer == world.revision
        assert len(world.ready(world.revision)) == total
