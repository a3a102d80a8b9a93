"""Why a container ended is told of a pod that is ready again, as long as it keeps ending."""

from __future__ import annotations

from typing import Any

from tests.operator.rollout.made_up.world import World

ENDED = {
    "exitCode": 137,
    "reason": "Error",
    "startedAt": "2025-12-31T23:55:00Z",
    "finishedAt": "2025-12-31T23:59:00Z",
}
WORKER = {
    "name": "worker",
    "started": True,
    "restartCount": 3,
    "state": {"running": {}},
    "lastState": {"terminated": ENDED},
}
# Kubernetes folds equal events into one, and moves the last moment only: here it is after the end.
UNHEALTHY = {
    "reason": "Unhealthy",
    "message": "Liveness probe failed: no answer within 15 s",
    "involvedObject": {"fieldPath": "spec.containers{worker}"},
    "firstTimestamp": "2025-12-31T23:58:30Z",
    "lastTimestamp": "2025-12-31T23:59:50Z",
}


class Flapping(World):
    """Each pod is up, and was killed by its probe a minute ago."""

    def pods(self, namespace: str, owner: str) -> tuple[dict[str, Any], ...]:
        found = super().pods(namespace, owner)
        for pod in found:
            pod["status"]["containerStatuses"] = [WORKER]
        return found

    async def pod_events(self, _: str, pod: str) -> tuple[Any, ...]:
        return (UNHEALTHY,)


def test_the_probe_that_killed_a_pod_is_told_while_it_is_ready() -> None:
    world = Flapping()
    world.apply_spec(replicas=1)
    world.live(8)
    assert len(world.ready(world.revision)) == 1
    assert world.condition("Degraded") == "True ProbeFailed"
