"""One pass over one resource: look, plan, act, say. May be killed at any point and done again.

Holds the order of the I/O and nothing else: what to do is decided by `reconcile`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_bytes
from typing import NamedTuple

import aiohttp
from chiasm_contract import instants, names
from chiasm_contract.messages import PodState

from chiasm_operator.api import Refused
from chiasm_operator.cluster import Cluster
from chiasm_operator.podstate import PodStates
from chiasm_operator.reconcile import children, configuration, status
from chiasm_operator.reconcile.configuration import Configured
from chiasm_operator.reconcile.diagnosis import refusals as why_refused
from chiasm_operator.reconcile.diagnosis.pods import needs_events
from chiasm_operator.reconcile.observed import Observed, is_active, key_of, pods_of
from chiasm_operator.reconcile.problems import Event, Problem
from chiasm_operator.reconcile.records import kept, specs, standing
from chiasm_operator.reconcile.rollout import Asked, Decision, decide, look
from chiasm_operator.render import Target
from chiasm_operator.render.configuration import digest
from chiasm_operator.render.configuration.pod import has_sources
from chiasm_operator.render.revision import record_of
from chiasm_operator.render.traffic import address
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


class Rest(NamedTuple):
    """How long to leave a resource alone: until an event, or something that no event tells of."""

    settled: bool
    wake_seconds: float | None = None
    acted: bool = False  # something was written, whose effect is worth a look


@dataclass(frozen=True)
class Pass:
    """What a pass needs of the world."""

    cluster: Cluster
    pod_states: PodStates
    images: Images
    now: Callable[[], str]
    random: Callable[[int], bytes] = token_bytes

    async def close(self) -> None:
        """Close the connections."""
        await self.cluster.close()
        await self.pod_states.close()

    async def run(self, namespace: str, name: str) -> Rest | None:
        """Do one pass; None when the resource is gone or going."""
        body = self.cluster.resource_of(namespace, name)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return None
        resource = from_manifest(body)
        epoch = self.cluster.fence.meet(resource.status.get("operatorEpoch", 0))
        try:
            target = Target(resource, parse_spec(resource.spec), self.images)
            fresh = record_of(target)
        except InvalidSpec as invalid:
            said = status.invalid(resource, str(invalid), self.now())
            told = await self._say(resource, body, epoch, said)
            return Rest(said.settled and told)
        now = self.now()
        observed = await self._observe(target)
        seen = look(target, observed)
        known = specs(target, kept(target, fresh, observed), standing(target, observed))
        configured = configuration.decide(target, observed, known, instants.to_seconds(now))
        asked = Asked.of(target, rotating=configured.rotating)
        decision = decide(asked, seen, partial(address, target), instants.to_seconds(now))
        wanted = children.desired(target, fresh, observed, decision, configured)
        observed = await self._with_what_is_in_the_way(resource, observed, wanted)
        plan = children.plan(target, wanted, observed, decision)
        unkeyed = await self._give_key(target, plan)
        refusals, plan_stands = await self._act(target, plan)
        if plan_stands and children.writes_traffic(target, plan, decision):
            await self._hurry(observed, resource.namespace, decision, configured)
        else:
            decision = decision.unwritten(seen)
        refused = [*unkeyed, *refusals]
        said = status.outcome(target, observed, decision, plan, refused, now, configured)
        told = await self._say(resource, body, epoch, said)
        due = decision.wake_at
        return Rest(
            said.settled and told,
            None if due is None else due - instants.to_seconds(now),
            acted=bool(plan.apply or plan.delete),
        )

    async def tell_failure(self, namespace: str, name: str, error: Exception) -> None:
        """Say in the status that passes over a resource fail, unless a later one may well not.

        An exception's own words stay in the log: nobody knows what is in them.
        """
        body = self.cluster.resource_of(namespace, name)
        if body is None or _may_pass(error):
            return
        resource = from_manifest(body)
        epoch = self.cluster.fence.meet(resource.status.get("operatorEpoch", 0))
        if isinstance(error, Refused):
            words = f"The API server refuses what the operator asks ({error.status}): {error}"
        else:
            words = (
                f"The operator fails at this resource ({type(error).__name__}), leaves its pods as "
                "they are and tries again; the operator's log has the rest."
            )
        await self._say(resource, body, epoch, status.failed(resource, words, self.now()))

    async def _observe(self, target: Target) -> Observed:
        namespace, name = target.resource.namespace, target.name
        found = await self.cluster.children(namespace, name)
        pods = self.cluster.pods(namespace, name)
        seen = Observed(found, pods)
        stable = target.resource.status.get("rollout", {}).get("stableRevision", "")
        revisions = dict.fromkeys((target.revision, stable))
        current = [pod for revision in revisions for pod in pods_of(seen, revision)]
        asked = [pod["metadata"]["name"] for pod in current if needs_events(pod)]
        states = await self.pod_states.ask([pod for pod in pods if is_active(pod)])
        events = await asyncio.gather(*(self.cluster.pod_events(namespace, pod) for pod in asked))
        return Observed(found, pods, states, dict(zip(asked, events, strict=True)))

    async def _with_what_is_in_the_way(
        self, resource: Resource, observed: Observed, wanted: Sequence[Manifest]
    ) -> Observed:
        """A missing child's name may be held by an object without our labels."""
        labelled = {key_of(item) for item in observed.children}
        missing = [key_of(item) for item in wanted if key_of(item) not in labelled]
        found = await asyncio.gather(
            *(self.cluster.get(kind, resource.namespace, child) for kind, child in missing)
        )
        return replace(observed, children=(*observed.children, *filter(None, found)))

    async def _hurry(
        self, observed: Observed, namespace: str, decision: Decision, configured: Configured
    ) -> None:
        """Make the kubelets of pods look at once for a plan that is newer than what they follow, or
        for a value of their configuration that they may take."""
        epoch = decision.plan.epoch
        behind = {
            pod["metadata"]["name"]
            for pod in filter(is_active, observed.pods)
            if pod.get("status", {}).get("podIP")
            and not _follows(observed.states.get(pod["metadata"]["name"]), epoch)
        }
        for key, value, names_of_pods in (
            (names.ANNOTATION_TRAFFIC_EPOCH, str(epoch), behind),
            (names.ANNOTATION_CONFIG_APPROVAL, configured.digest, set(configured.hurried)),
        ):
            for pod in observed.pods:
                metadata = pod["metadata"]
                told = metadata.get("annotations", {}).get(key)
                if metadata["name"] in names_of_pods and told != value:
                    await self.cluster.annotate_pod(namespace, metadata["name"], key, value)

    async def _give_key(self, target: Target, plan: children.ChildPlan) -> list[Problem]:
        """Make the key by which pods name values, before there are pods; why there is none.

        Nobody may look whether it is there, so it is made again, in vain, with each change: one of
        a deleted resource can still have its name the first time.
        """
        if not has_sources(target) or not (plan.apply or plan.waiting):
            return []
        key = digest.render(target, self.random(digest.KEY_BYTES))
        try:
            await self.cluster.create_once(key)
        except Refused as refused:
            if refused.status in _PASSING:
                raise
            return [why_refused.child(*key_of(key), refused.status, refused.message)]
        return []

    async def _act(self, target: Target, plan: children.ChildPlan) -> tuple[list[Problem], bool]:
        """What was refused, and whether the traffic plan stands as it was decided."""
        refusals: list[Problem] = []
        resource = target.resource
        for manifest in plan.apply:
            kind, name = key_of(manifest)
            try:
                await self.cluster.apply(manifest)
            except Refused as refused:
                if refused.status in _PASSING and _NOT_IN_SCHEMA not in refused.message:
                    raise
                problem = why_refused.child(kind, name, refused.status, refused.message)
                refusals.append(problem)
                if (kind, name) == ("ConfigMap", target.traffic_name):
                    return refusals, False  # what follows the plan must not come without it
            else:
                logger.info("%s/%s: applied %s", resource.namespace, name, kind)
        for kind, name in plan.delete:
            await self.cluster.delete(kind, resource.namespace, name)
            logger.info("%s/%s: deleted %s", resource.namespace, name, kind)
        return refusals, True

    async def _say(
        self, resource: Resource, seen: Manifest, epoch: int, said: status.Outcome
    ) -> bool:
        """Whether it is told. A resource that changed meanwhile is looked at again first, and what
        happened to it is told then."""
        full = {**said.status, "operatorEpoch": epoch}
        if full != resource.status and not await self.cluster.write_status(seen, full):
            return False
        for event in said.events:
            log = logger.warning if event.warning else logger.info
            log("%s/%s: %s: %s", resource.namespace, resource.name, event.reason, event.message)
            await self.cluster.post_event(
                resource.namespace, event_manifest(resource, event, self.now())
            )
        return True


def _may_pass(error: Exception) -> bool:
    if isinstance(error, Refused):
        return error.status in _PASSING
    return isinstance(error, aiohttp.ClientError | OSError)  # TimeoutError is one


def _follows(state: PodState | None, epoch: int) -> bool:
    return state is not None and state.traffic.epoch >= epoch


def event_manifest(resource: Resource, event: Event, now: str) -> Manifest:
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
