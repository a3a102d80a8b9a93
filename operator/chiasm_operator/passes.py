"""One pass over one resource: look, plan, act, say. May be killed at any point and done again.

Holds the order of the I/O and nothing else: what to do is decided by `reconcile`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chiasm_contract import names

from chiasm_operator.api import Refused
from chiasm_operator.cluster import Cluster
from chiasm_operator.podstate import PodStates
from chiasm_operator.reconcile import children, status
from chiasm_operator.reconcile.diagnosis import refusals as why_refused
from chiasm_operator.reconcile.observed import Observed, is_ready, key_of, pods_of
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
from chiasm_operator.resource import (
    Images,
    InvalidSpec,
    Manifest,
    Resource,
    from_manifest,
    parse_spec,
)

logger = logging.getLogger(__name__)

# Refusals that a later pass may not meet: conflicts, throttling, a server in trouble.
_PASSING = {409, 429, 500, 502, 503, 504}
# What the API server calls an internal error when a field is not in the schema.
_NOT_IN_SCHEMA = "failed to create typed patch object"


@dataclass(frozen=True)
class Pass:
    """What a pass needs of the world."""

    cluster: Cluster
    pod_states: PodStates
    images: Images
    now: Callable[[], str]

    async def close(self) -> None:
        """Close the connections."""
        await self.cluster.close()
        await self.pod_states.close()

    async def run(self, namespace: str, name: str) -> bool | None:
        """Do one pass; whether the resource is settled, or None when it is gone or going."""
        body = self.cluster.index.get(names.KIND, namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        resource = from_manifest(body)
        epoch = self.cluster.fence.meet(resource.status.get("operatorEpoch", 0))
        try:
            target = Target(resource, parse_spec(resource.spec), self.images)
            wanted = children.desired(target)
        except InvalidSpec as invalid:
            said = status.invalid(resource, str(invalid), self.now())
        else:
            observed = await self._observe(target, wanted)
            plan = children.plan(target, wanted, observed)
            refusals = await self._act(resource, plan)
            said = status.outcome(target, observed, plan, refusals, self.now())
        told = await self._say(resource, body, {**said.status, "operatorEpoch": epoch}, said.events)
        return said.settled and told

    async def _observe(self, target: Target, wanted: Sequence[Manifest]) -> Observed:
        namespace, name = target.resource.namespace, target.name
        found = self.cluster.children(namespace, name)
        pods = self.cluster.pods(namespace, name)
        # A missing child's name may be held by an object without our labels.
        labelled = {key_of(item) for item in found}
        missing = [key_of(item) for item in wanted if key_of(item) not in labelled]
        in_the_way = await asyncio.gather(
            *(self.cluster.get(kind, namespace, child) for kind, child in missing)
        )
        seen = Observed((*found, *filter(None, in_the_way)), pods)
        current = pods_of(seen, target.revision)
        unready = [pod["metadata"]["name"] for pod in current if not is_ready(pod)]
        states = await self.pod_states.ask(current)
        events = await asyncio.gather(*(self.cluster.pod_events(namespace, pod) for pod in unready))
        return Observed(seen.children, pods, states, dict(zip(unready, events, strict=True)))

    async def _act(self, resource: Resource, plan: children.ChildPlan) -> list[Problem]:
        refusals = []
        for manifest in plan.apply:
            kind, name = key_of(manifest)
            try:
                await self.cluster.apply(manifest)
            except Refused as refused:
                if refused.status in _PASSING and _NOT_IN_SCHEMA not in refused.message:
                    raise
                problem = why_refused.child(kind, name, refused.status, refused.message)
                refusals.append(problem)
            else:
                logger.info("%s/%s: applied %s", resource.namespace, name, kind)
        for kind, name in plan.delete:
            await self.cluster.delete(kind, resource.namespace, name)
            logger.info("%s/%s: deleted %s", resource.namespace, name, kind)
        return refusals

    async def _say(
        self,
        resource: Resource,
        seen: Manifest,
        said: Manifest,
        events: Sequence[status.Event],
    ) -> bool:
        """Whether it is told. A resource that changed meanwhile is looked at again first, and what
        happened to it is told then."""
        if said != resource.status and not await self.cluster.write_status(seen, said):
            return False
        for event in events:
            log = logger.warning if event.warning else logger.info
            log("%s/%s: %s: %s", resource.namespace, resource.name, event.reason, event.message)
            await self.cluster.post_event(
                resource.namespace, event_manifest(resource, event, self.now())
            )
        return True


def event_manifest(resource: Resource, event: status.Event, now: str) -> Manifest:
    """A core/v1 Event about `resource`."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{resource.name}.", "namespace": resource.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": resource.name,
            "namespace": resource.namespace,
            "uid": resource.uid,
        },
        "type": "Warning" if event.warning else "Normal",
        "reason": event.reason.value,
        "message": event.message[:1024],
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
