"""What people may say by annotation, and what becomes of what says nothing."""

from __future__ import annotations

import pytest
from chiasm_contract.weights import parse_weight, weight_text
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.rollout.made_up.scenarios import both, note, spec
from tests.operator.rollout.made_up.world import World

STEPS = [{"setWeight": 20}, {"pause": {}}, {"setWeight": 40}, {"pause": {}}]


def beside(world: World, weight: str = "5", **rollout: object) -> World:
    both(spec(2, **rollout), note(canary_weight=weight))(world)
    return world.settled()


@pytest.mark.parametrize(
    ("text", "parts"), [("0", 0), ("5", 500), ("2.5", 250), ("0.25", 25), ("100", 10_000)]
)
def test_a_weight_is_followed_exactly(text: str, parts: int, served: World) -> None:
    assert beside(served, text).share == parts
    assert served.rollout["weight"] == text
    assert served.pointer != served.revision, "not even 100 % promotes"
    assert served.plan is not None
    assert served.plan.members == tuple(sorted(pod.name for pod in served.ready(served.pointer)))
    # Without them a later turn that another sidecar gets would lose its conversation.
    assert served.plan.member_addresses == ("10.0.0.1:9100",) * len(served.plan.members)


def test_who_has_no_address_yet_has_no_place(served: World) -> None:
    beside(served)
    pods = sorted(served.ready(served.pointer), key=lambda pod: pod.name)
    for number, pod in enumerate(pods):
        pod.address = f"10.0.0.{number}" if number else None
    plan = served.settled().plan
    assert plan is not None
    assert plan.members == tuple(pod.name for pod in pods[1:])
    assert plan.member_addresses == tuple(f"{pod.address}:9100" for pod in pods[1:])


@given(st.integers(0, 10_000))
def test_weights_are_read_as_they_are_written(parts: int) -> None:
    assert parse_weight(weight_text(parts)) == parts


@pytest.mark.parametrize(
    "text", ["", "-1", "101", "100.01", "0.125", "5%", "1e1", "NaN", "５", " 5"]
)
def test_a_bad_weight_is_named_and_changes_nothing(text: str, served: World) -> None:
    world = beside(served)
    note(canary_weight=text)(world)
    world.settled()
    assert world.share == 500
    assert world.condition("RolloutHealthy") == "False InvalidAnnotation"
    (message,) = (words for reason, words in world.events if reason == "InvalidAnnotation")
    assert f"chiasm.dev/canary-weight: {text!r}" in message
    assert "0 to 100 with at most two decimals" in message
    note(canary_weight="6")(world)
    world.settled()
    assert world.share == 600
    assert world.condition("RolloutHealthy") == "True AsExpected"


def test_a_bad_weight_beside_a_new_spec_does_not_let_it_loose(served: World) -> None:
    both(spec(2), note(canary_weight="5%"))(served)
    served.settled()
    assert served.replicas(served.revision) == 0
    assert served.condition("Paused") == "True InvalidAnnotation"


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("rollout_action", "stop", "pause, resume, promote, abort, retry"),
        ("canary_by_header", "no header", "the name of an HTTP header"),
        ("canary_by_header_value", "alone", "only beside chiasm.dev/canary-by-header"),
        ("canary_by_cookie", "a=b", "the name of a cookie"),
    ],
)
def test_other_bad_values_are_named(key: str, value: str, allowed: str, served: World) -> None:
    world = beside(served)
    note(**{key: value})(world)
    world.settled()
    (message,) = (words for reason, words in world.events if reason == "InvalidAnnotation")
    assert repr(value) in message
    assert allowed in message
    assert world.share == 500


def test_overrides_reach_the_plan(served: World) -> None:
    world = beside(served, "0")
    note(canary_by_header="x-canary", canary_by_header_value="me", canary_by_cookie="c")(world)
    world.settled()
    assert world.plan is not None
    override = world.plan.override
    assert (override.header, override.header_value, override.cookie) == ("x-canary", "me", "c")


def test_a_removed_weight_stays_for_its_canary_and_no_other(served: World) -> None:
    world = beside(served)
    note(canary_weight=None)(world)
    world.settled()
    assert world.share == 500
    assert world.reasons().count("ManualWeightAnnotationRemoved") == 1
    spec(3)(world)
    world.settled()
    assert world.pointer == world.revision, "another revision goes by the spec"


def test_auto_goes_back_to_the_steps(served: World) -> None:
    world = beside(served, "5", steps=STEPS)
    assert world.rollout["currentStep"] == 0
    note(canary_weight="auto")(world)
    world.settled()
    assert (world.share, world.rollout["currentStep"]) == (2000, 1)


def test_pause_holds_a_manual_weight_too(served: World) -> None:
    world = beside(served)
    note(rollout_action="pause", canary_weight="50")(world)
    world.settled()
    assert world.share == 500
    assert world.condition("Paused") == "True PausedByAction"
    note(rollout_action="resume")(world)
    world.settled()
    assert world.share == 5000


def test_resume_ends_one_pause_step(served: World) -> None:
    spec(2, steps=STEPS)(served)
    served.settled()
    assert served.rollout["currentStep"] == 1
    note(rollout_action="resume")(served)
    served.settled()
    assert (served.share, served.rollout["currentStep"]) == (4000, 3)


def test_promote_passes_over_the_rest(served: World) -> None:
    spec(2, steps=STEPS)(served)
    served.settled()
    note(rollout_action="promote")(served)
    served.settled()
    assert served.pointer == served.revision
    assert "RolloutPromoted" in served.reasons()
    assert sum(served.created.values()) == 6, "nothing restarted"


def test_an_action_is_done_once(served: World) -> None:
    world = beside(served)
    note(rollout_action="abort")(world)
    world.settled()
    assert world.state == "Aborted"
    assert world.reasons().count("RolloutAborted") == 1
    spec(3)(world)  # whoever keeps annotations in Git leaves it there
    world.settled()
    assert world.share == 500
    (message,) = (words for reason, words in world.events if reason == "ActionIgnored")
    assert f"write abort:{world.revision}" in message
    note(rollout_action=f"abort:{world.revision}")(world)
    world.settled()
    assert world.state == "Aborted"


def test_an_action_for_another_revision_is_ignored(served: World) -> None:
    world = beside(served)
    note(rollout_action="promote:v1-0000000000")(world)
    world.settled()
    assert world.share == 500
    (message,) = (words for reason, words in world.events if reason == "ActionIgnored")
    assert "names revision v1-0000000000" in message


def test_retry_begins_at_the_first_step(served: World) -> None:
    spec(2, steps=STEPS)(served)
    served.settled()
    note(rollout_action="abort")(served)
    served.settled()
    assert served.resource["status"]["phase"] == "Degraded"
    assert served.condition("Ready") == "False RolloutAborted"
    assert served.condition("Serving") == "True PodsReady"
    note(rollout_action="retry")(served)
    served.settled()
    assert (served.share, served.rollout["currentStep"]) == (2000, 1)
    assert "RolloutRetried" in served.reasons()


def test_a_restart_surges_within_the_revision(served: World) -> None:
    note(restartedAt="2026-01-02T00:00:00Z")(served)
    served.settled()
    assert served.created == {f"reader-{served.revision}": 6}
    note(restartedAt=None)(served)
    served.settled()
    assert sum(served.created.values()) == 6


def test_a_restart_leaves_what_is_kept_warm_alone(served: World) -> None:
    """Pods without traffic were replaced as well, and those that drain with their answers."""
    first = served.pointer or ""
    spec(2, rollbackWindow={"seconds": 400})(served)
    served.live(60, lambda: served.pointer == served.revision)
    served.live(20)
    before = dict(served.created)
    note(restartedAt="2026-01-02T00:00:00Z")(served)
    served.live(40)
    assert served.replicas(first) == 3
    assert served.created == {**before, f"reader-{served.revision}": 6}


def test_a_restart_reaches_both_sides_of_a_canary(served: World) -> None:
    world = beside(served, "50")
    note(restartedAt="2026-01-02T00:00:00Z")(world)
    world.settled()
    assert world.created == {f"reader-{world.pointer}": 6, f"reader-{world.revision}": 4}


def test_the_phase_is_paused_while_a_canary_stands(served: World) -> None:
    world = beside(served)
    assert world.resource["status"]["phase"] == "Paused"
    assert world.condition("Paused") == "True ManualWeight"
    assert world.condition("Ready") == "False RolloutInProgress"
    assert world.condition("TrafficSynced") == "True PlanAcknowledged"


def test_the_drain_waits_for_answers_up_to_a_deadline(served: World) -> None:
    first = served.pointer or ""
    world = beside(served)
    world.in_flight = {first: 1}
    note(rollout_action="promote")(world)
    world.live(60, lambda: world.pointer == world.revision)
    world.live(100)
    assert world.replicas(first) == 3
    assert world.state == "Draining"
    world.in_flight = {}
    world.live(3)
    assert world.replicas(first) == 0


def test_answers_without_an_end_are_waited_for_as_long_as_a_request_may_take(
    served: World,
) -> None:
    first = served.pointer or ""
    world = beside(served)
    world.in_flight = {first: 1}
    note(rollout_action="promote")(world)
    world.live(60, lambda: world.pointer == world.revision)
    world.live(301)  # config.requestTimeoutSeconds is 600
    assert world.replicas(first) == 0


def test_a_pod_that_does_not_answer_once_still_follows(served: World) -> None:
    answering = served.ask

    async def silent(_: object) -> dict[str, object]:
        return {}

    served.ask = silent  # type: ignore[assignment, method-assign]
    served.live(3)
    assert served.condition("TrafficSynced") == "True PlanAcknowledged"
    assert served.condition("Ready") == "True AllReplicasReady"
    served.ask = answering  # type: ignore[method-assign]
    served.lag = 5
    spec(1, sticky={"ttlSeconds": 7})(served)
    served.live(1)
    assert served.condition("TrafficSynced") == "False PlanNotAcknowledged"
    served.settled()
    assert served.condition("TrafficSynced") == "True PlanAcknowledged"


def test_a_changed_mind_is_not_idle_while_the_canary_has_a_share(served: World) -> None:
    world = beside(served, "50")
    gone = world.revision
    said = set()
    spec(1)(world)
    for _ in range(40):
        world.one_pass()
        if world.plan is not None and world.plan.canary is not None:
            said.add((world.state, world.rollout["message"]))
        world.live(1)
    assert world.state == "Idle"
    assert said == {("Shifting", f"Revision {gone} gives its traffic back.")}


def test_the_second_of_two_pauses_ends_at_another_resume(served: World) -> None:
    spec(2, steps=STEPS)(served)
    served.settled()
    note(rollout_action=f"resume:{served.revision}:first")(served)
    served.settled()
    assert (served.share, served.rollout["currentStep"]) == (4000, 3)
    note(rollout_action=f"resume:{served.revision}:second")(served)
    served.settled()
    assert served.pointer == served.revision
    assert served.rollout["lastAction"]["value"].endswith(":second")


def test_an_action_is_not_done_again_when_its_revision_comes_back(served: World) -> None:
    world = beside(served)
    second = world.revision
    note(rollout_action=f"abort:{second}")(world)
    world.settled()
    for number in (3, 4):
        spec(number)(world)
        world.settled()
        assert world.share == 500
    assert "ActionIgnored" not in world.reasons(), "it was done for the revision that it names"
    spec(2)(world)
    world.settled()
    assert (world.revision, world.share, world.state) == (second, 500, "Paused")


def test_an_action_may_be_written_before_its_revision_comes(served: World) -> None:
    world = beside(served)
    second = world.revision
    spec(1)(world)
    world.settled()
    note(rollout_action=f"abort:{second}")(world)
    world.settled()
    spec(2)(world)
    world.settled()
    assert world.state == "Aborted"


def test_promote_goes_past_a_comparison_without_data(served: World) -> None:
    look = [{"setWeight": 5}, {"analysis": {"seconds": 20}}, {"pause": {}}]
    spec(2, steps=look, analysis={"intervalSeconds": 4, "noDataDeadlineSeconds": 40})(served)
    served.live(60, lambda: served.rollout.get("inconclusive", False))
    note(rollout_action="promote")(served)
    served.settled()
    assert served.pointer == served.revision
    assert not served.rollout["inconclusive"]


def test_a_promoted_canary_is_no_longer_called_aborted(served: World) -> None:
    world = beside(served)
    note(rollout_action="abort")(world)
    world.settled()
    note(rollout_action="promote")(world)
    world.live(60, lambda: world.pointer == world.revision)
    assert [item for item in world.rollout["leaving"] if item["why"] == "aborted"] == []


def test_the_abort_of_a_paused_rollout_resumes_nothing(served: World) -> None:
    world = beside(served)
    note(rollout_action="pause")(world)
    world.settled()
    note(rollout_action="abort")(world)
    world.settled()
    assert world.state == "Aborted"
    assert "RolloutResumed" not in world.reasons()


def test_a_step_of_everything_is_a_step(served: World) -> None:
    spec(2, steps=[{"setWeight": 100}, {"pause": {}}])(served)
    served.settled()
    assert (served.share, served.state) == (10_000, "Paused")
    assert served.condition("Paused") == "True CanaryPauseStep"


def test_a_weight_of_everything_is_reached(served: World) -> None:
    world = beside(served, "100")
    assert world.state == "Paused"
    assert world.condition("Paused") == "True ManualWeight"


def test_a_paused_rollout_scales_up(served: World) -> None:
    """It stood with the pods that it had, however many were asked for."""
    spec(2)(served)
    served.live(4)
    spec(2, paused=True)(served)
    served.settled()
    assert 0 < served.replicas(served.revision) < 3
    spec(2, 9, paused=True)(served)
    served.settled()
    assert len(served.ready(served.pointer)) + len(served.ready(served.revision)) == 9
    spec(2, 6, paused=True)(served)
    served.settled()
    assert len(served.ready(served.pointer)) + len(served.ready(served.revision)) == 9
    spec(2, 6)(served)
    served.settled()
    assert (served.pointer, len(served.ready(served.revision))) == (served.revision, 6)
