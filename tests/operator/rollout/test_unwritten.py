"""The ConfigMap of the plan cannot be written: nothing that needs it is done, nobody hurries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chiasm_contract import names

from tests.operator.rollout.made_up.scenarios import note, spec
from tests.operator.rollout.made_up.world import NAME, World

TRAFFIC = ("ConfigMap", f"{NAME}-traffic")


def refuse(world: World) -> None:
    world.refused.add(TRAFFIC)


def take_its_name(world: World) -> None:
    world.objects[TRAFFIC] = {"kind": "ConfigMap", "metadata": {"name": TRAFFIC[1]}}


def leave_it_over(world: World) -> None:
    former = {"controller": True, "kind": names.KIND, "name": NAME, "uid": "of another life"}
    metadata = {"name": TRAFFIC[1], "ownerReferences": [former]}
    world.objects[TRAFFIC] = {"kind": "ConfigMap", "metadata": metadata}


@pytest.mark.parametrize("spoil", [refuse, take_its_name, leave_it_over])
def test_a_new_resource_comes_to_rest(spoil: Callable[[World], None]) -> None:
    world = World()
    spoil(world)
    spec(1)(world)
    world.settled()
    assert world.rollout["epoch"] == 0
    assert not any(item.startswith("annotate") for item in world.writes)
    assert world.condition("Degraded").startswith("True") or not world.refused


@pytest.mark.parametrize("spoil", [refuse, take_its_name, leave_it_over])
def test_a_standing_one_comes_to_rest(spoil: Callable[[World], None], served: World) -> None:
    first, epoch = served.pointer, served.rollout["epoch"]
    spoil(served)
    spec(2, steps=[{"pause": {"seconds": 60}}, {"setWeight": 5}])(served)
    note(rollout_action="pause")(served)
    served.settled()
    writes = len(served.writes)
    served.live(30)
    assert served.writes[writes:] == []
    assert (served.pointer, served.rollout["epoch"]) == (first, epoch)
    assert len(served.ready(first)) == 3


def test_what_could_not_be_written_is_not_told(served: World) -> None:
    first = served.revision
    spec(2, steps=[{"setWeight": 50}, {"pause": {}}])(served)
    served.settled()
    refuse(served)
    note(rollout_action="abort")(served)
    served.settled()
    assert "RolloutAborted" not in served.reasons()
    assert served.rollout["weight"] == "50"
    assert served.rollout.get("abortedRevision") is None
    served.refused.clear()
    served.settled()
    assert "RolloutAborted" in served.reasons()
    assert (served.share, served.pointer) == (0, first)
