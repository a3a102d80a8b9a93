"""What pods report of their sources, and what they are allowed so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract import instants, names
from chiasm_contract.api.environments import Environment
from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.configuration import Approvals, ConfigReport, SourceReport
from pydantic import ValidationError

from chiasm_operator.reconcile.observed import Observed, is_ready, pods_of
from chiasm_operator.render import Target
from chiasm_operator.render.configuration.references import in_pods
from chiasm_operator.resource import Manifest


@dataclass(frozen=True)
class PodSeen:
    """One pod; `load_seconds` is how long it took to become ready, None before it was."""

    name: str
    report: ConfigReport | None
    load_seconds: int | None = None

    def of(self, source: str) -> SourceReport | None:
        """What it says of a source."""
        reported = self.report.sources if self.report else ()
        return next((each for each in reported if each.name == source), None)

    def is_behind(self, asked: str | None) -> bool:
        """Whether it has not followed what was `asked`; without a source there is nothing to."""
        if asked is None or self.report is None or not self.report.sources:
            return False
        return self.report.asked != asked

    @property
    def is_stuck(self) -> bool:
        """Whether something is wrong with one of its sources, so that it takes nothing up."""
        reported = self.report.sources if self.report else ()
        return any(each.fault or each.refused for each in reported)


@dataclass(frozen=True)
class RevisionSeen:
    """The pods of one revision, and the environment that it is in."""

    revision: str
    environment: Environment
    pods: tuple[PodSeen, ...] = ()

    def reports(self, source: str) -> dict[str, SourceReport]:
        """By pod, of those that say something of a source."""
        said = {pod.name: pod.of(source) for pod in self.pods}
        return {name: report for name, report in said.items() if report is not None}


@dataclass(frozen=True)
class Seen:
    """Of every revision that is in an environment."""

    revisions: tuple[RevisionSeen, ...] = ()
    approvals: Approvals = field(default_factory=Approvals)

    @property
    def has_sources(self) -> bool:
        """Whether pods have anything to take up."""
        return any(each.environment.sources for each in self.revisions)


def look(target: Target, observed: Observed, specs: Mapping[str, Spec]) -> Seen:
    """The facts; `specs` are those of the revisions that stand."""
    config = observed.child("ConfigMap", target.traffic_name) or {}
    text = (config.get("data") or {}).get(names.APPROVALS_KEY)
    return Seen(
        tuple(
            RevisionSeen(revision, environment, _pods(observed, revision))
            for revision, spec in specs.items()
            if (environment := _of_pods(spec)) is not None
        ),
        _approvals(text),
    )


def _of_pods(spec: Spec) -> Environment | None:
    """The environment with the sources that pods have and report of."""
    chosen = spec.config.chosen
    return chosen and chosen.model_copy(update={"sources": list(in_pods(spec))})


def _approvals(text: str | None) -> Approvals:
    """What is written; nothing where somebody made something else of it."""
    try:
        return Approvals.model_validate_json(text) if text else Approvals()
    except ValidationError:
        return Approvals()


def _pods(observed: Observed, revision: str) -> tuple[PodSeen, ...]:
    return tuple(_pod(observed, pod) for pod in pods_of(observed, revision))


def _pod(observed: Observed, pod: Manifest) -> PodSeen:
    name = pod["metadata"]["name"]
    state = observed.states.get(name)
    return PodSeen(name, state.configuration if state else None, _load_seconds(pod))


def _load_seconds(pod: Manifest) -> int | None:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = [each for each in conditions if each["type"] == "Ready"]
    since = ready[0].get("lastTransitionTime") if ready else None
    if not since or not is_ready(pod):
        return None
    try:
        began = instants.to_seconds(pod["metadata"]["creationTimestamp"])
        return max(0, instants.to_seconds(since) - began)
    except (KeyError, ValueError):
        return None
