"""A cluster that is made up: Deployments get pods, pods become ready, sidecars follow plans late.

It answers what `chiasm_operator.cluster.Cluster` and `PodStates` answer, so that real passes run
against it, moment by moment and without a clock. Each write is checked against what must never
happen; a pass can be killed before any of its writes.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract import instants, names
from chiasm_contract.configuration import Approvals
from chiasm_contract.messages import PodState
from chiasm_contract.traffic import Counts, TrafficPlan
from chiasm_operator.api import Refused
from chiasm_operator.leadership.fence import Fence
from chiasm_operator.passes import Pass, Rest
from chiasm_operator.resource import Images

from tests.operator.rollout.made_up import deployments, never, sidecars
from tests.operator.rollout.made_up.configured import Sources, approvals_of
from tests.operator.rollout.made_up.deployments import Pod

NAMESPACE, NAME = "vision", "reader"
UID = "11111111-2222-3333-4444-555555555555"
IMAGES = Images("example.com/worker:1", "example.com/sidecar:1", "example.com/sidecar-peers:1")
START = instants.to_seconds("2026-01-01T00:00:00Z")
SECONDS_PER_MOMENT = 2


class Killed(BaseException):
    """The operator's process ends here."""


def leading(epoch: int) -> Fence:
    """The fence of a leader whose lease never ends."""
    fence = Fence(lambda: 0.0)
    fence.open(epoch, until=1.0)
    return fence


@dataclass
class World:
    """Everything in it.

    Attributes:
        boot: moments until a pod is ready.
        lag: moments until a sidecar follows a plan that was written.
        broken: revisions whose pods never become ready.
        counts: revision -> what sidecars report of it.
        in_flight: revision -> requests that are still running.
        mute: sidecars stay with the plan that they follow.
        sources: of configuration, which sidecars take up.
        refused: objects (kind, name) that may not be written.
        transitions: numbers of the writes in each pass that ended in another state.
        kill_before: the operator is killed before the write of this number, once.
        strict: whether what must serve is checked.
    """

    boot: int = 2
    lag: int = 1
    moment: int = 0
    sources: Sources = field(default_factory=Sources)
    broken: set[str] = field(default_factory=set)
    mute: bool = False
    refused: set[tuple[str, str]] = field(default_factory=set)
    counts: dict[str, dict[str, Counts]] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    all_pods: dict[str, Pod] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    transitions: list[range] = field(default_factory=list)
    pass_began: int = 0
    kill_before: int | None = None
    strict: bool = True
    resource: dict[str, Any] = field(default_factory=dict)
    fence: Fence = field(default_factory=lambda: leading(epoch=1))
    created: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, Any] = field(default_factory=dict)

    # --- what people do ---

    def apply_spec(self, **spec: Any) -> None:
        full = {"model": {"source": {"builtin": "demo"}}, **spec}
        metadata = self.resource.get("metadata") or {
            "name": NAME, "namespace": NAMESPACE, "uid": UID, "generation": 0, "annotations": {},
        }  # fmt: skip
        metadata["generation"] += 1
        self.resource = {**self.resource, "metadata": metadata, "spec": full}

    def annotate(self, **annotations: str | None) -> None:
        """canary_weight="5" sets chiasm.dev/canary-weight; None removes it."""
        live = self.resource["metadata"]["annotations"]
        for key, value in annotations.items():
            full = f"chiasm.dev/{key.replace('_', '-')}"
            if value is None:
                live.pop(full, None)
            else:
                live[full] = value

    def crash(self, revision: str) -> None:
        for pod in self.all_pods.values():
            if pod.revision == revision:
                pod.ready, pod.born = False, self.moment

    # --- what tests look at ---

    @property
    def now(self) -> str:
        return instants.to_text(START + SECONDS_PER_MOMENT * self.moment)

    @property
    def rollout(self) -> dict[str, Any]:
        found: dict[str, Any] = self.resource.get("status", {}).get("rollout", {})
        return found

    @property
    def state(self) -> str:
        return str(self.rollout.get("state", ""))

    @property
    def revision(self) -> str:
        return str(self.resource["status"]["revision"])

    @property
    def pointer(self) -> str | None:
        service = self.objects.get(("Service", NAME), {})
        found: str | None = service.get("spec", {}).get("selector", {}).get(names.LABEL_REVISION)
        return found

    @property
    def plan(self) -> TrafficPlan | None:
        config = self.objects.get(("ConfigMap", f"{NAME}-traffic"))
        text = (config or {}).get("data", {}).get(names.TRAFFIC_KEY)
        return TrafficPlan.model_validate_json(text) if text else None

    @property
    def approvals(self) -> Approvals:
        config = self.objects.get(("ConfigMap", f"{NAME}-traffic"))
        return approvals_of((config or {}).get("data", {}))

    @property
    def share(self) -> int:
        return self.plan.share if self.plan else 0

    def replicas(self, revision: str) -> int:
        live = self.objects.get(("Deployment", f"{NAME}-{revision}"), {})
        return int(live.get("spec", {}).get("replicas", 0))

    def ready(self, revision: str | None) -> list[Pod]:
        return [pod for pod in self.all_pods.values() if pod.revision == revision and pod.ready]

    def condition(self, kind: str) -> str:
        found = self.resource["status"]["conditions"]
        return next(f"{item['status']} {item['reason']}" for item in found if item["type"] == kind)

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]

    # --- what goes on by itself ---

    def tick(self) -> None:
        self.moment += 1
        for (kind, _), item in self.objects.items():
            if kind == "Deployment":
                deployments.control(item, self.all_pods, self.created, self.moment)
        for name, pod in list(self.all_pods.items()):
            if ("Deployment", pod.deployment) not in self.objects:
                del self.all_pods[name]
                continue
            if not pod.ready and self.moment - pod.born >= self.boot:
                pod.ready = pod.revision not in self.broken
                pod.plan = self.plan if pod.ready else None
                pod.allowed = self.approvals
            due = [plan for at, plan in pod.pending if at <= self.moment]
            pod.pending = [(at, plan) for at, plan in pod.pending if at > self.moment]
            if due and not self.mute:
                pod.plan = due[-1]
            allowed = [item for at, item in pod.allowing if at <= self.moment]
            pod.allowing = [item for item in pod.allowing if item[0] > self.moment]
            pod.allowed = allowed[-1] if allowed else pod.allowed
            if pod.ready:
                self.sources.act(pod, pod.allowed)
        for (kind, _), item in self.objects.items():
            if kind == "Deployment":
                deployments.report(item, self.all_pods)

    # --- what the operator calls ---

    def _write(self, what: str) -> None:
        if self.kill_before is not None and len(self.writes) >= self.kill_before:
            self.kill_before = None
            raise Killed
        self.writes.append(what)

    async def close(self) -> None:
        pass

    def resource_of(self, _: str, name: str) -> dict[str, Any]:
        return copy.deepcopy(self.resource)

    async def get(self, kind: str, _: str, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.objects.get((kind, name)))

    async def children(self, _: str, owner: str) -> tuple[dict[str, Any], ...]:
        return tuple(copy.deepcopy(list(self.objects.values())))

    def pods(self, _: str, owner: str) -> tuple[dict[str, Any], ...]:
        return tuple(deployments.manifest(pod, NAME, START) for pod in self.all_pods.values())

    async def pod_events(self, _: str, pod: str) -> tuple[Any, ...]:
        return ()

    async def ask(self, pods: Sequence[Any]) -> dict[str, PodState]:
        return {
            name: sidecars.state(self.all_pods[name], self.counts, self.in_flight, self.sources)
            for name in (pod["metadata"]["name"] for pod in pods)
        }

    async def apply(self, manifest: Any) -> None:
        key = (manifest["kind"], manifest["metadata"]["name"])
        if key in self.refused:
            raise Refused(403, f"{key[1]} is forbidden: exceeded quota")
        self._write(f"apply {key[0]} {key[1]}")
        item = copy.deepcopy(dict(manifest))
        before = self.objects.get(key)
        generation = (before or {}).get("metadata", {}).get("generation", 0)
        changed = before is None or before["spec"] != item["spec"] if "spec" in item else False
        item["metadata"]["generation"] = generation + changed
        if before and "status" in before:
            item["status"] = before["status"]
        if key[0] == "Deployment":
            never.too_few_pods(self, item, before)
        if key == ("Service", NAME):
            never.clients_without_pods(self, item)
        self.objects[key] = item
        if key == ("ConfigMap", f"{NAME}-traffic"):
            self._spread()

    async def create_once(self, manifest: Any) -> None:
        name = manifest["metadata"]["name"]
        if ("Secret", name) in self.refused:
            raise Refused(403, f"{name} is forbidden: exceeded quota")
        self._write(f"create Secret {name}")
        self.secrets.setdefault(name, copy.deepcopy(manifest))

    def _spread(self) -> None:
        plan = self.plan
        assert plan is not None
        never.share_without_pods(self, plan)
        for pod in self.all_pods.values():
            pod.pending.append((self.moment + self.lag, plan))
            pod.allowing.append((self.moment + self.lag, self.approvals))

    async def delete(self, kind: str, _: str, name: str) -> None:
        self._write(f"delete {kind} {name}")
        gone = self.objects.pop((kind, name), None)
        if kind == "Deployment" and gone:
            never.deleted_under_pods(self, gone)

    async def annotate_pod(self, _: str, name: str, key: str, value: str) -> None:
        self._write(f"annotate {name}")
        if name in self.all_pods:
            if key == names.ANNOTATION_TRAFFIC_EPOCH:
                self.all_pods[name].told = value
            else:
                self.all_pods[name].told_of = value

    async def write_status(self, seen: Any, status: Any) -> bool:
        self._write("status")
        self.resource["status"] = copy.deepcopy(status)
        if self.state and self.state != (self.states or [""])[-1]:
            self.states.append(self.state)
            self.transitions.append(range(self.pass_began, len(self.writes)))
        return True

    async def post_event(self, _: str, event: Any) -> None:
        self._write(f"event {event['reason']}")
        self.events.append((event["reason"], event["message"]))

    # --- what is left ---

    def end_state(self) -> dict[str, Any]:
        """What is left when nothing moves, without numbers that only count attempts."""
        status = copy.deepcopy(self.resource["status"])
        status["rollout"].pop("epoch")
        for item in status["conditions"]:
            item.pop("lastTransitionTime")
            item["message"] = item["message"].rstrip("0123456789.")  # "follows plan 7."
        objects = copy.deepcopy(self.objects)
        for item in objects.values():
            item["metadata"].pop("generation", None)
            item["metadata"].get("annotations", {}).pop(names.ANNOTATION_APPLIED, None)
            item.get("status", {}).pop("observedGeneration", None)
        plan = json.loads(objects["ConfigMap", f"{NAME}-traffic"]["data"].pop(names.TRAFFIC_KEY))
        plan = {key: value for key, value in plan.items() if key not in {"epoch", "window"}}
        return {"status": status, "objects": objects, "plan": plan}

    @property
    def orphans(self) -> list[tuple[str, str]]:
        """Objects of revisions that nothing needs any more."""
        needed = {self.pointer, self.revision}
        needed |= {item["revision"] for item in self.rollout.get("leaving", ())}
        return [
            key
            for key, item in self.objects.items()
            if key[0] != "ControllerRevision"
            and item["metadata"]["labels"].get(names.LABEL_REVISION, self.pointer) not in needed
        ]

    # --- moments ---

    def one_pass(self) -> Rest:
        """One pass of the operator, which may be killed in it."""
        self.pass_began = len(self.writes)
        one = Pass(self, self, IMAGES, lambda: self.now)  # type: ignore[arg-type]
        return asyncio.run(_run(one))

    def surviving_pass(self) -> Rest:
        """A pass, and behind a kill the one of the operator that is started again."""
        try:
            return self.one_pass()
        except Killed:
            return self.one_pass()

    def live(self, moments: int, until: Callable[[], bool] | None = None) -> World:
        """Passes and moments, until something holds or they are over."""
        for _ in range(moments):
            self.surviving_pass()
            if until is not None and until():
                return self
            self.tick()
        if until is not None:
            raise AssertionError(
                f"after {moments} moments: {self.state}, share {self.share}, "
                f"{self.rollout.get('message')}, events {self.events[-5:]}"
            )
        return self

    def settled(self, moments: int = 200) -> World:
        """Until nothing changes any more."""
        quiet = 0
        for _ in range(moments):
            before = len(self.writes)
            pods = {name: pod.ready for name, pod in self.all_pods.items()}
            rest = self.surviving_pass()
            self.tick()
            same = rest.wake_seconds is None and pods == {
                name: pod.ready for name, pod in self.all_pods.items()
            }
            quiet = quiet + 1 if same and len(self.writes) == before else 0
            if quiet > self.lag + self.boot + 1:
                return self
        raise AssertionError(f"still moving: {self.state}, {self.writes[-12:]}")


async def _run(one: Pass) -> Rest:
    rest = await one.run(NAMESPACE, NAME)
    assert rest is not None
    return rest
