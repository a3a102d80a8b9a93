"""Somebody wrote something else into the ConfigMap of the plan: no pass may stumble over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_operator.render.traffic import ROLLOUT_KEY

from tests.operator.rollout.made_up.scenarios import both, note, spec
from tests.operator.rollout.made_up.world import NAME, World


def edit(world: World, key: str, change: Mapping[str, Any]) -> None:
    data = world.objects["ConfigMap", f"{NAME}-traffic"]["data"]
    data[key] = json.dumps({**json.loads(data[key]), **change})


@pytest.mark.parametrize("share", [0, 5000])
def test_a_canary_that_nobody_knows_is_taken_out(share: int, served: World) -> None:
    epoch = served.rollout["epoch"] + 1
    ghost = {"revision": "v1-ghost", "address": "nowhere:8000"}
    edit(served, names.TRAFFIC_KEY, {"canary": ghost, "share": share, "epoch": epoch})
    served.settled()
    assert served.plan is not None
    assert (served.plan.canary, served.share) == (None, 0)
    assert served.condition("Ready").startswith("True")


@pytest.mark.parametrize(
    "change",
    [
        {"stepBegan": "2026-01-01T00:00:00+00:00"},
        {"stepDeadline": "soon"},
        {"nextLook": "2026-13-01T00:00:00Z"},
        {"manualWeight": "x"},
        {"currentStep": -9},
        {"leaving": [{"revision": "v1-b", "until": "noon", "why": "warm"}]},
    ],
)
def test_a_rollout_that_says_nothing_is_read_from_the_status(
    change: dict[str, Any], served: World
) -> None:
    steps = [{"setWeight": 5}, {"pause": {"seconds": 3600}}]
    both(spec(2, steps=steps), note(canary_weight="20"))(served)
    served.settled()
    edit(served, ROLLOUT_KEY, change)
    served.settled()
    assert (served.share, served.rollout["manualWeight"]) == (2000, "20")
    note(canary_weight="auto")(served)
    served.live(10, lambda: served.state == "Paused" and served.share == 500)
