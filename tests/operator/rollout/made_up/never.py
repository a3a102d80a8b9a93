"""What must never happen, whatever the operator writes and whenever it is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chiasm_contract import names
from chiasm_contract.traffic import TrafficPlan

from tests.operator.rollout.made_up.deployments import pods_of

if TYPE_CHECKING:
    from tests.operator.rollout.made_up.world import World


class Broken(AssertionError):
    """Something happened that must never happen."""


def share_without_pods(world: World, plan: TrafficPlan) -> None:
    if plan.share and plan.canary and not world.ready(plan.canary.revision):
        raise Broken(f"{plan.share} go to {plan.canary.revision}, which has no ready pod")


def too_few_pods(world: World, item: dict[str, Any], before: dict[str, Any] | None) -> None:
    """A revision keeps the pods that its share needs, in each plan that some sidecar goes by."""
    wanted = item["spec"]["replicas"]
    if before is None or wanted >= before["spec"]["replicas"] or not world.strict:
        return
    rollout = world.resource["spec"].get("rollout", {})
    total = world.resource["spec"].get("replicas", 1)
    must = total - rollout.get("maxUnavailable", 0)
    revision = item["metadata"]["labels"][names.LABEL_REVISION]
    for plan in _followed(world):
        due = must * _part(plan, revision) / 10_000
        if wanted < due - 0.1:  # a share is rounded
            raise Broken(f"{revision} shrinks to {wanted} pods while {due} are needed")


def _followed(world: World) -> list[TrafficPlan]:
    """What the pods that clients reach go by."""
    return [pod.plan for pod in world.ready(world.pointer) if pod.plan is not None]


def _part(plan: TrafficPlan, revision: str) -> int:
    if plan.canary is not None and plan.canary.revision == revision:
        return plan.share
    return 10_000 - plan.share if plan.stable.revision == revision else 0


def clients_without_pods(world: World, service: dict[str, Any]) -> None:
    revision = service["spec"]["selector"][names.LABEL_REVISION]
    moved = world.pointer not in (None, revision)
    if moved and not world.ready(revision) and world.resource["spec"].get("replicas", 1):
        raise Broken(f"clients are sent to {revision}, which has no ready pod")


def deleted_under_pods(world: World, deployment: dict[str, Any]) -> None:
    if any(pod.ready for pod in pods_of(deployment, world.all_pods)):
        raise Broken(f"{deployment['metadata']['name']} was deleted under ready pods")
