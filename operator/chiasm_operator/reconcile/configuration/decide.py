"""One decision: what pods may take, which are replaced, and what is told of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.fields import count_of
from chiasm_contract.api.status import StatusConfig
from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.conditions import Finding, Reason
from chiasm_contract.configuration import Approval, Approvals

from chiasm_operator.reconcile.configuration import restarting, said
from chiasm_operator.reconcile.configuration.approving import approve
from chiasm_operator.reconcile.configuration.budget import Roll
from chiasm_operator.reconcile.configuration.seen import RevisionSeen, Seen, look
from chiasm_operator.reconcile.observed import Observed
from chiasm_operator.reconcile.problems import Event
from chiasm_operator.render import Target


@dataclass(frozen=True)
class Configured:
    """What is to be, and what is so.

    Attributes:
        approvals: None: no revision has a source.
        restarts: what the pod template of a revision says so that its pods are replaced.
        rotating: pods take up something new: steps wait, and what was counted is forgotten.
        hurried: pods that should look at what is allowed at once.
    """

    approvals: Approvals | None = None
    restarts: Mapping[str, str] = field(default_factory=dict)
    rotating: bool = False
    hurried: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    seen: Seen = field(default_factory=Seen)

    @property
    def moving(self) -> bool:
        """Whether pods are about something of which no event tells."""
        return any(each.reason is Reason.ROTATION_IN_PROGRESS for each in self.findings)

    @property
    def digest(self) -> str:
        """Another one for other approvals."""
        text = self.approvals.model_dump_json() if self.approvals else ""
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def status(self, target: Target, stable: str) -> StatusConfig | None:
        """`status.config`."""
        before = target.resource.status.get("config")
        roles = target.revision, stable
        return said.status(self.seen, self.approvals or Approvals(), before, roles)

    def events(
        self, target: Target, after: StatusConfig | None, *, written: bool
    ) -> tuple[Event, ...]:
        """What has been done since the stored status, and, where it could be `written`, begun."""
        before = target.resource.status.get("config")
        begun = tuple(
            Event(
                Reason.ROLLOUT_RESTART_TRIGGERED,
                f"Pods of revision {revision} are replaced: a value changed that they cannot take "
                "up while they run, or a lease is about to end.",
            )
            for revision in (self.restarts if written else ())
        )
        return (*said.told(before, after), *begun)


def decide(target: Target, observed: Observed, specs: Mapping[str, Spec], now: int) -> Configured:
    """The decision at time `now`; `specs` are those of the revisions that stand."""
    seen = look(target, observed, specs)
    if not seen.has_sources:
        return Configured(seen=seen)
    asked = target.resource.annotations.get(names.ANNOTATION_RELOAD_CONFIG)
    approvals = Approvals(
        asked=seen.approvals.asked if asked is None else asked,
        revisions={each.revision: _approved(each, seen.approvals) for each in seen.revisions},
    )
    rolls = {each.revision: _roll(target, each) for each in seen.revisions}
    lease = said.leases(seen, rolls, now)
    return Configured(
        approvals=approvals,
        restarts=_restarts(target, observed, seen, rolls, now),
        rotating=_rotating(seen, approvals),
        hurried=tuple(_hurried(seen, approvals)),
        findings=(said.synced(seen, approvals), *([lease] if lease else [])),
        seen=seen,
    )


def _approved(seen: RevisionSeen, before: Approvals) -> dict[str, Approval]:
    environment = seen.environment
    shared = [each.name for each in environment.sources if not environment.leases(each)]
    found = {name: approve(before.of(seen.revision, name), seen.reports(name)) for name in shared}
    return {name: approval for name, approval in found.items() if approval is not None}


def _roll(target: Target, seen: RevisionSeen) -> Roll:
    loads = [pod.load_seconds for pod in seen.pods if pod.load_seconds is not None]
    rollout, replicas = target.spec.rollout, max(1, len(seen.pods))
    surge = count_of(rollout.max_surge, replicas, up=True)
    return Roll(replicas, surge, max(loads, default=None), rollout.drain_seconds)


def _restarts(
    target: Target, observed: Observed, seen: Seen, rolls: Mapping[str, Roll], now: int
) -> dict[str, str]:
    """Only of Deployments whose pods are all as they should be: one roll after the other."""
    found = {}
    for each in seen.revisions:
        live = observed.child("Deployment", target.revision_name(each.revision))
        if live is None or not _settled(live, len(each.pods)):
            continue
        stamp = restarting.stamp(each, rolls[each.revision], now, stamped(live))
        if stamp is not None:
            found[each.revision] = stamp
    return found


def stamped(live: Mapping[str, Any]) -> str | None:
    """What the pods of a Deployment were last replaced for."""
    metadata = live.get("spec", {}).get("template", {}).get("metadata", {})
    value: str | None = metadata.get("annotations", {}).get(names.ANNOTATION_CONFIG_RESTART)
    return value


def _settled(live: Mapping[str, Any], num_pods: int) -> bool:
    """Whether all its pods are of its template, those that were looked at too: what a Deployment
    says may come before the news of its pods."""
    status, wanted = live.get("status", {}), live.get("spec", {}).get("replicas", 0)
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas")}
    seen = status.get("observedGeneration") == live["metadata"].get("generation")
    return seen and counts == {wanted} and num_pods == wanted


def _rotating(seen: Seen, approvals: Approvals) -> bool:
    """Leases are each pod's own affair, and of many pods some is always new. What is wrong may stay
    so: conditions tell of it, and it holds nothing up."""
    for each in seen.revisions:
        for source in each.environment.sources:
            if each.environment.leases(source):
                continue
            reports = each.reports(source.name).values()
            approval = approvals.of(each.revision, source.name)
            refused = any(report.refused for report in reports)
            behind = approval and any(
                report.id not in (None, approval.id) and report.fault is None for report in reports
            )
            if behind and not refused:
                return True
        if any(pod.is_behind(approvals.asked) and not pod.is_stuck for pod in each.pods):
            return True
    return False


def _hurried(seen: Seen, approvals: Approvals) -> list[str]:
    """Pods that may take something now which they have not taken."""
    found = []
    for each in seen.revisions:
        for pod in each.pods:
            if pod.report is None:
                continue
            allowed = [
                approvals.of(each.revision, report.name)
                for report in pod.report.sources
                if report.offered is not None and not report.leased
            ]
            mine = any(item and item.prover in (None, pod.name) for item in allowed)
            if mine or pod.is_behind(approvals.asked):
                found.append(pod.name)
    return found
