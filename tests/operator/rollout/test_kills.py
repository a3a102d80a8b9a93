"""The operator killed between any two writes, sidecars that lag, pods that crash: same end state.

What must never happen (a share without ready pods, stable below what it needs, clients sent to a
revision without pods) is checked by the world at each write.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.rollout.made_up.scenarios import SCENARIOS, STEPS, WINDOW, note, spec, told
from tests.operator.rollout.made_up.world import World

# Each end state once. Hypothesis chooses which kills are tried; bench/operator_chaos.py does all.
_ENDS: dict[str, tuple[World, object]] = {}


def undisturbed(name: str) -> World:
    if name not in _ENDS:
        world = told(name, World())
        _ENDS[name] = (world, world.end_state())
    return _ENDS[name][0]


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_nothing_is_left_over(name: str) -> None:
    world = undisturbed(name)
    assert not world.orphans
    assert world.pointer in (world.revision, world.rollout["stableRevision"])


@given(st.data())
@settings(max_examples=20)
def test_killed_at_any_write_the_end_is_the_same(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SCENARIOS)))
    calm = undisturbed(name)
    before = data.draw(st.integers(0, len(calm.writes) - 1))
    killed = told(name, World(kill_before=before))
    assert killed.kill_before is None, "it was killed"
    assert killed.end_state() == _ENDS[name][1]


PEOPLE = {
    "revision 1": spec(1),
    "revision 2": spec(2),
    "revision 3": spec(3),
    "five pods": spec(2, 5),
    "one pod": spec(1, 1),
    "steps": spec(3, steps=STEPS[3:]),
    "window": spec(2, **WINDOW),
    "5 %": note(canary_weight="5"),
    "60 %": note(canary_weight="60"),
    "auto": note(canary_weight="auto"),
    "no weight": note(canary_weight=None),
    "abort": note(rollout_action="abort"),
    "promote": note(rollout_action="promote"),
    "pause": note(rollout_action="pause"),
    "resume": note(rollout_action="resume"),
    "retry": note(rollout_action="retry"),
    "crash": lambda world: world.crash(world.pointer or ""),
    "canary crash": lambda world: world.crash(world.revision),
    "status wiped": lambda world: world.resource.pop("status", None),
}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(PEOPLE)), st.integers(1, 9), st.integers(0, 60)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 4),
)
@settings(max_examples=25)
def test_whatever_people_do_nothing_forbidden_happens_and_it_ends(
    happenings: list[tuple[str, int, int]], lag: int
) -> None:
    world = World(lag=lag)
    spec(1)(world)
    world.settled()
    for what, moments, kill_after in happenings:
        PEOPLE[what](world)
        world.kill_before = len(world.writes) + kill_after
        world.live(moments)
    world.kill_before = None
    world.annotate(canary_weight=None, rollout_action=None)
    spec(7)(world)
    world.live(2)
    world.annotate(canary_weight="auto", rollout_action=f"promote:{world.revision}")
    world.settled(400)
    assert world.pointer == world.revision
    assert world.replicas(world.revision) == len(world.ready(world.revision)) == 3
    assert not world.orphans
    assert world.condition("Ready") == "True AllReplicasReady"
