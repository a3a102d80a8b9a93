"""Sources of the made-up cluster, and sidecars that take their values up when they may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract.configuration import Approvals, ConfigReport, SourceReport

from tests.operator.rollout.made_up.deployments import Pod


@dataclass
class Sources:
    """What the sources have, alike for all pods.

    Attributes:
        values: by source.
        bad: values that no pod can use.
        restarting: sources whose values no pod takes up while it runs.
        away: nobody can ask for any; a pod that begins has what there was.
        without: environments that have none.
        taken: (pod, value) in the order in which running pods took them.
    """

    values: dict[str, str] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)
    restarting: set[str] = field(default_factory=set)
    away: bool = False
    without: set[str] = field(default_factory=set)
    taken: list[tuple[str, str]] = field(default_factory=list)

    def act(self, pod: Pod, approvals: Approvals) -> None:
        """A moment of one sidecar."""
        if pod.environment in self.without:
            return
        if not pod.using:
            pod.asked = approvals.asked
        for source, value in self.values.items():
            using = pod.using.get(source)
            if using == value or value in self.bad:
                continue
            allowed = approvals.of(pod.revision, source)
            may = allowed and allowed.id == value and allowed.prover in (None, pod.name)
            if using is None:
                pod.using[source] = value
            elif self.away:
                continue
            elif may and source not in self.restarting:
                pod.using[source] = value
                self.taken.append((pod.name, value))
        if not self.away:
            pod.asked = approvals.asked

    def report(self, pod: Pod) -> ConfigReport:
        """What its sidecar says."""
        if not self.values:
            return ConfigReport()
        if pod.environment in self.without:
            return ConfigReport(environment=pod.environment or "")
        fault = "It is sealed." if self.away else None
        said = tuple(
            self._said(pod, *item).model_copy(update={"fault": fault})
            for item in self.values.items()
        )
        return ConfigReport(environment="prod", asked=pod.asked, sources=said)

    def _said(self, pod: Pod, source: str, value: str) -> SourceReport:
        using = pod.using.get(source)
        if using in (None, value):
            return SourceReport(name=source, id=using)
        refused = "It does not work." if value in self.bad else None
        if source in self.restarting:
            restart = None if refused else value
            return SourceReport(name=source, id=using, refused=refused, restart=restart)
        return SourceReport(name=source, id=using, offered=value, refused=refused)


def approvals_of(data: Mapping[str, str]) -> Approvals:
    """What a ConfigMap allows."""
    text = data.get("config.json")
    return Approvals.model_validate_json(text) if text else Approvals()
