"""A cluster without KEDA: pods serve, and the condition of the autoscaler says what is missing."""

from __future__ import annotations

from typing import Any

from chiasm_operator.api import Refused
from chiasm_operator.render.autoscaler import SCALED_OBJECT

from tests.operator.rollout.made_up.world import NAME, World

TRIGGER = {"serverAddress": "http://p", "query": "q", "threshold": 8}


class WithoutKeda(World):
    installed = False

    async def apply(self, manifest: Any) -> None:
        if manifest["kind"] == SCALED_OBJECT and not self.installed:
            raise Refused(404, "the server could not find the requested resource")
        await super().apply(manifest)


def test_without_keda_pods_serve_and_the_condition_says_why() -> None:
    world = WithoutKeda()
    world.apply_spec(autoscaling={"maxReplicas": 3, "keda": {"prometheus": [TRIGGER]}})
    world.settled()
    assert world.condition("Ready") == "True AllReplicasReady"
    assert world.condition("Progressing") == "False RolloutComplete"
    assert world.condition("Degraded") == "False AsExpected"
    assert world.condition("Autoscaled") == "False KedaNotInstalled"
    assert world.reasons().count("KedaNotInstalled") == 1
    world.installed = True
    world.settled()
    assert (SCALED_OBJECT, NAME) in world.objects
    assert world.condition("Autoscaled") == "Unknown NotReported"
