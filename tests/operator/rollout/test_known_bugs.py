"""What other rollout controllers got wrong, one test for each report.

The numbers are those of argo-rollouts, flagger and kserve issues; what went wrong there is said
in one line, what must hold here is the test.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_operator.render import pod as pod_rendering

from tests.operator.rollout.made_up.scenarios import STEPS, both, note, spec
from tests.operator.rollout.made_up.world import World


def canary(world: World, weight: str = "50", revision: int = 2) -> World:
    """A second revision stands beside the first with a weight."""
    both(spec(revision), note(canary_weight=weight))(world)
    return world.settled()


def test_argo_4841_abort_takes_the_share_before_the_pods(served: World) -> None:
    """The weight was derived from replicas and never reached 0."""
    world = canary(served)
    note(rollout_action="abort")(world)
    world.one_pass()
    assert world.share == 0
    assert world.replicas(world.revision) == 2


def test_argo_4128_abort_needs_no_ready_canary(served: World) -> None:
    """Pods never came up; abort and deadline did nothing."""
    spec(2)(served)
    served.live(1)
    served.broken.add(served.revision)
    served.live(5)
    note(rollout_action="abort")(served)
    served.live(40, lambda: served.state == "Aborted")
    assert served.replicas(served.revision) == 0
    assert len(served.ready(served.pointer)) == 3


def test_argo_4128_abort_of_a_hung_canary(served: World) -> None:
    """Its sidecars answer nothing, follow nothing."""
    world = canary(served)
    for pod in world.ready(world.revision):
        pod.plan = None
        pod.pending = [(10**9, pod.plan)]  # type: ignore[list-item]
    note(rollout_action="abort")(world)
    world.live(60, lambda: world.state == "Aborted")


def test_argo_4612_weight_waits_for_the_pods_that_it_needs(served: World) -> None:
    """On the way back 70 % went to a canary sized for 5 %."""
    world = canary(served, "5")
    world.boot = 6
    note(canary_weight="70")(world)
    world.live(5)
    assert (world.share, world.replicas(world.revision)) == (500, 3)
    world.settled()
    assert world.share == 7000
    assert len(world.ready(world.revision)) == 3


def test_argo_1838_no_pin_outlives_an_abort(served: World) -> None:
    """Affinity rules still reached the aborted canary."""
    world = canary(served)
    note(canary_by_header="x-canary")(world)
    world.live(3)
    note(rollout_action="abort")(world)
    world.one_pass()
    assert world.plan is not None
    assert world.plan.canary is None
    assert world.plan.override.header is None


def test_argo_4390_a_third_revision_first_takes_the_share_from_the_second(served: World) -> None:
    """The old canary was scaled down while it was routed to: 503."""
    world = canary(served)
    second = world.revision
    world.lag = 5
    spec(3)(world)
    world.live(3)
    assert world.share == 0
    assert world.replicas(second) == 2, "sidecars may still send there"
    assert world.replicas(world.revision) == 0, "the third has not begun"
    world.settled()
    assert world.replicas(second) == 0
    assert world.share == 5000
    assert world.plan is not None
    assert world.plan.canary is not None
    assert world.plan.canary.revision == world.revision


def test_argo_3372_nothing_goes_to_what_is_not_up(served: World) -> None:
    """A new revision sent 100 % to a stable that was scaled to nothing."""
    served.boot = 8
    spec(2)(served)
    for _ in range(8):
        served.live(1)
        assert served.share == 0
        assert len(served.ready(served.pointer)) == 3


def test_argo_4828_stable_stays_until_every_sidecar_follows(served: World) -> None:
    """Stable went to 0 while proxies lagged: 503."""
    served.mute = True
    first = served.pointer or ""
    spec(2)(served)
    served.live(60)
    assert served.replicas(first) == 3
    assert served.condition("TrafficSynced") == "False PlanNotAcknowledged"
    assert served.condition("Ready").startswith("False")
    served.mute = False
    served.annotate(anything="to renew what the world spreads")
    for pod in served.all_pods.values():
        pod.plan = served.plan
    served.settled()
    assert served.replicas(first) == 0


def test_argo_2050_stable_stays_while_the_canary_lacks_pods(served: World) -> None:
    """Stable was scaled down all the same."""
    first = served.pointer or ""
    spec(2)(served)
    served.live(1)
    served.broken.add(served.revision)
    served.live(50)
    assert (served.replicas(first), served.replicas(served.revision)) == (3, 1)
    assert served.share == 0


def test_argo_4973_an_aborted_canary_stays_down_when_scaled(served: World) -> None:
    """Each scale-up revived it, and the Service's selector flapped."""
    world = canary(served)
    first = world.pointer
    note(rollout_action="abort")(world)
    world.settled()
    assert world.state == "Aborted"
    selectors = []
    spec(2, replicas=6)(world)
    for _ in range(20):
        world.live(1)
        selectors.append(world.pointer)
    assert set(selectors) == {first}
    assert (world.replicas(world.revision), world.replicas(first or "")) == (0, 6)


def test_argo_4073_an_older_status_moves_nothing_back(served: World) -> None:
    """A stale object was written over a fresher cache."""
    world = canary(served, "5")
    stale = world.resource["status"]
    note(canary_weight="50")(world)
    world.settled()
    world.resource["status"] = stale
    writes = len(world.writes)
    world.one_pass()
    assert world.share == 5000
    assert [item for item in world.writes[writes:] if item.startswith("apply")] == []
    assert world.rollout["weight"] == "50"


def test_flagger_1931_a_promoted_revision_is_not_taken_back_to_what_it_replaced(
    served: World,
) -> None:
    """A promotion failed, and "rollback" sent everything to the broken primary."""
    world = canary(served)
    note(rollout_action="promote")(world)
    second = world.revision
    world.live(60, lambda: world.pointer == second)
    world.crash(second)
    for _ in range(10):
        world.live(1)
        assert world.pointer == second
    world.settled()
    assert world.pointer == second


def test_flagger_1931_a_broken_stable_does_not_promote_by_itself(served: World) -> None:
    """What was to be verified first keeps the share that it has."""
    world = canary(served, "5")
    world.broken.add(world.pointer or "")
    world.crash(world.pointer or "")
    world.live(20)
    assert world.share == 500
    assert world.rollout["stableRevision"] != world.revision


def test_flagger_780_a_status_that_is_pruned_restarts_nothing(served: World) -> None:
    """A field missing in the CRD made every pass a new revision."""
    spec(2, steps=STEPS)(served)
    counted = served
    for _ in range(60):
        counted.resource.pop("status", None)
        counted.live(1)
    rollout = counted.rollout
    assert rollout["currentStep"] == 2, "in the analysis, which has no data"
    assert counted.share == 500
    assert len(counted.created) == 2


def test_flagger_1942_a_newer_operator_starts_no_canary(
    served: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of the controller rolled out workloads that nobody had changed."""
    before = dict(served.created)
    render = pod_rendering.render

    def newer(target: Any) -> dict[str, Any]:
        made = render(target)
        made["spec"]["hostname"] = "renamed"
        return made

    monkeypatch.setattr(pod_rendering, "render", newer)
    writes = len(served.writes)
    served.settled()
    assert served.writes[writes:] == []
    assert served.created == before
    # An edit by somebody else is mended to what it was, not to what would be rendered now.
    deployment = served.objects["Deployment", f"reader-{served.revision}"]
    deployment["spec"]["template"]["spec"]["hostname"] = "edited"
    deployment["spec"]["template"]["spec"]["serviceAccountName"] = "edited"
    served.one_pass()
    mended = served.objects["Deployment", f"reader-{served.revision}"]["spec"]["template"]["spec"]
    assert mended["serviceAccountName"] == "reader"
    assert mended.get("hostname") != "renamed"


def test_kserve_2130_an_edited_canary_brings_no_older_revision_back(served: World) -> None:
    """The baseline of a second canary was the revision before stable."""
    first = served.pointer
    spec(2)(served)
    served.settled()
    second = served.pointer
    canary(served, "20", 3)
    canary(served, "20", 4)
    assert served.pointer == second
    assert served.plan is not None
    assert served.plan.stable.revision == second
    standing = {key[1] for key in served.objects if key[0] == "Deployment"}
    assert standing == {f"reader-{second}", f"reader-{served.revision}"}
    assert f"reader-{first}" not in standing


def test_dynamo_13620_to_and_fro_makes_no_new_pods(served: World) -> None:
    """A revert in the middle of a rollout deleted the generation that served."""
    first = served.pointer or ""
    spec(2)(served)
    served.live(6)
    born = {pod.name for pod in served.all_pods.values() if pod.revision == first}
    spec(1)(served)
    served.settled()
    now = {pod.name for pod in served.ready(first)}
    assert len(now) == 3
    assert born <= now
    assert served.pointer == first


def autoscaler(world: World, load: float) -> int:
    """What a HorizontalPodAutoscaler wants while `load` pods' worth of work is divided by the plan:
    the mean over the pods that it is told of, and Kubernetes' tolerance of a tenth."""
    chosen = dict(pair.split("=") for pair in world.resource["status"]["selector"].split(","))
    told = [pod["metadata"]["labels"] for pod in world.pods("", "")]
    told = [labels for labels in told if chosen.items() <= labels.items()]
    by_canary = load * world.share / 10_000
    work = {world.pointer: load - by_canary}
    work[world.revision] = work.get(world.revision, 0.0) + by_canary
    mean = sum(work[each] for each in {item[names.LABEL_REVISION] for item in told}) / len(told)
    wanted = math.ceil(mean * len(told) - 1e-9)
    return world.resource["spec"]["replicas"] if abs(mean - 1) <= 0.1 else wanted


def test_argo_2857_an_autoscaler_follows_the_load_beside_a_canary(served: World) -> None:
    """It drove stable to its most, or stood still while the canary had too much (#4607)."""
    spec(1, 4)(served)
    served.settled()
    both(spec(2, 4), note(canary_weight="50"))(served)
    served.settled()
    for load in (4, 9, 2):
        for _ in range(4):
            spec(2, autoscaler(served, load))(served)
            served.settled()
        assert served.resource["spec"]["replicas"] == load
        for revision in (served.pointer, served.revision):
            assert len(served.ready(revision)) >= load / 2
    assert served.share == 5000


def test_kserve_3376_every_running_pod_is_told_of_another_plan(served: World) -> None:
    """A change of a mounted ConfigMap went unseen for forty minutes."""
    world = canary(served, "5")
    note(canary_weight="50")(world)
    world.settled()
    assert world.plan is not None
    assert {pod.told for pod in world.all_pods.values()} == {str(world.plan.epoch)}


def test_a_canary_that_crashes_as_often_as_it_comes_up_is_taken_back(served: World) -> None:
    """Each crash took its share, and each new share began a new window: it was never found out."""
    analysis = {"intervalSeconds": 2, "failureLimit": 1, "minSamples": 1000}
    steps = [{"setWeight": 50}, {"analysis": {"seconds": 3600}}]
    spec(2, steps=steps, analysis=analysis)(served)
    served.live(40, lambda: served.state == "Verifying")
    assert served.plan is not None
    window = served.plan.window
    windows = set()
    for _ in range(60):
        served.crash(served.revision)
        served.live(3)
        if served.plan.canary is not None:
            windows.add(served.plan.window)
        if served.rollout.get("abortedRevision"):
            break
    assert windows == {window}
    assert "is ready to be compared" in served.rollout["abortMessage"]
    assert served.share == 0
