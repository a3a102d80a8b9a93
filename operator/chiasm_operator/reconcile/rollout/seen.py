"""The facts of a rollout, read from the objects of one look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chiasm_contract import names
from chiasm_contract.api.status import StatusRollout
from chiasm_contract.messages import PodState
from chiasm_contract.traffic import Counts, TrafficPlan, TrafficReport
from pydantic import BaseModel, ValidationError

from chiasm_operator.reconcile import routing
from chiasm_operator.reconcile.observed import Observed, is_ready, pods_of
from chiasm_operator.reconcile.ownership import Owner, owner
from chiasm_operator.reconcile.records import standing
from chiasm_operator.render import Target
from chiasm_operator.render.traffic import ROLLOUT_KEY

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Standing:
    """The pods of one revision.

    Attributes:
        replicas: what its Deployment asks for.
        ready: pods that take requests.
        pods: pods that are not going.
        entries: names of the ready ones that a client can reach, sorted: Kubernetes gives each
            an address first.
        addresses: host:port of the metrics ports of `entries`, in their order.
        compute_fp: what they say that they compute.
    """

    replicas: int = 0
    ready: int = 0
    pods: int = 0
    entries: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    compute_fp: str | None = None


NOTHING = Standing()
_OURS = {Owner.OURS, Owner.ADOPTABLE}


@dataclass(frozen=True)
class Seen:
    """Everything that a decision depends on beside what is asked."""

    pointer: str | None = None  # the revision that the Service for clients selects
    plan: TrafficPlan | None = None
    rollout: StatusRollout = field(default_factory=StatusRollout)
    standing: Mapping[str, Standing] = field(default_factory=dict)
    reports: Mapping[str, TrafficReport] = field(default_factory=dict)  # by pod
    route_epoch: int | None = None  # the plan that Gateways follow, where they divide

    def of(self, revision: str | None) -> Standing:
        """The pods of a revision, which may have none."""
        return self.standing.get(revision or "", NOTHING)

    def acknowledged(self, *revisions: str | None) -> bool:
        """Whether each pod of `revisions` that clients reach follows the plan as it is, and so do
        the Gateways where they divide."""
        return not self.lagging(*revisions) and self.routed

    @property
    def routed(self) -> bool:
        """Whether Gateways follow the plan, or do not divide."""
        if self.route_epoch is None or self.plan is None:
            return True
        return self.route_epoch >= self.plan.epoch

    def lagging(self, *revisions: str | None) -> tuple[str, ...]:
        """Names of the pods that do not yet; where Gateways divide, clients reach the canary's."""
        if self.plan is None:
            return ()
        epoch, unknown = self.plan.epoch, TrafficReport()
        if self.plan.divided_by == "gateway" and self.plan.canary is not None:
            revisions = (*revisions, self.plan.canary.revision)
        return tuple(
            pod
            for revision in dict.fromkeys(revisions)
            for pod in self.of(revision).entries
            if self.reports.get(pod, unknown).epoch < epoch
        )

    def in_flight(self, revision: str) -> int:
        """Requests of a revision that some sidecar still waits for."""
        return sum(
            report.versions[revision].in_flight
            for report in self.reports.values()
            if revision in report.versions
        )

    def counts(self, revision: str) -> dict[str, Counts]:
        """What became of its requests since the pair or the share changed, by modality."""
        found: dict[str, Counts] = {}
        for report in self.reports.values():
            if self.plan and report.window == self.plan.window and revision in report.versions:
                for modality, counts in report.versions[revision].by_modality.items():
                    found[modality] = _sum(found.get(modality, Counts()), counts)
        return found


def _sum(one: Counts, other: Counts) -> Counts:
    added: dict[str, Any] = {}
    for name in Counts.model_fields:
        mine, theirs = getattr(one, name), getattr(other, name)
        added[name] = (
            tuple(a + b for a, b in zip(mine, theirs, strict=True))
            if isinstance(mine, tuple)
            else mine + theirs
        )
    return Counts(**added)


def look(target: Target, observed: Observed) -> Seen:
    """The facts. What stands beside the plan in its ConfigMap is newer than the status."""
    observed = replace(
        observed,
        children=tuple(item for item in observed.children if owner(item, target.resource) in _OURS),
    )
    config = observed.child("ConfigMap", target.traffic_name) or {}
    data = config.get("data") or {}
    kept = _parsed(StatusRollout, data.get(ROLLOUT_KEY))
    if kept is None:
        kept = _stored(target.resource.status.get("rollout"))
    service = observed.child("Service", target.name) or {}
    return Seen(
        pointer=service.get("spec", {}).get("selector", {}).get(names.LABEL_REVISION),
        plan=_parsed(TrafficPlan, data.get(names.TRAFFIC_KEY)),
        rollout=kept,
        standing={
            revision: _standing(observed, target, revision)
            for revision in standing(target, observed)
        },
        reports={name: state.traffic for name, state in observed.states.items()},
        route_epoch=routing.epoch(target, observed),
    )


def _parsed(kind: type[M], text: str | None) -> M | None:
    """What a file holds; None when somebody made something else of it."""
    try:
        return kind.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _stored(status: object) -> StatusRollout:
    try:
        return StatusRollout.model_validate(status or {})
    except ValidationError:
        return StatusRollout()


def _standing(observed: Observed, target: Target, revision: str) -> Standing:
    deployment = observed.child("Deployment", target.revision_name(revision)) or {}
    pods = pods_of(observed, revision)
    ready = [pod for pod in pods if is_ready(pod)]
    names_of_ready = sorted(pod["metadata"]["name"] for pod in ready)
    hosts = {pod["metadata"]["name"]: pod["status"].get("podIP") for pod in ready}
    entries = tuple(name for name in names_of_ready if hosts[name])
    return Standing(
        replicas=deployment.get("spec", {}).get("replicas", 0),
        ready=len(ready),
        pods=len(pods),
        entries=entries,
        addresses=tuple(names.host_port(hosts[name], names.METRICS_PORT) for name in entries),
        compute_fp=_compute_fp(observed.states, names_of_ready),
    )


def _compute_fp(states: Mapping[str, PodState], pods: list[str]) -> str | None:
    for pod in pods:
        state = states.get(pod)
        if state is not None and state.identity is not None:
            return state.identity.compute_fp
    return None
