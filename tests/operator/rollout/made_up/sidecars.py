"""What the sidecars of the made-up cluster say of themselves."""

from __future__ import annotations

from collections.abc import Mapping

from chiasm_contract.messages import IdentityReport, PodState
from chiasm_contract.traffic import Counts, TrafficReport, VersionReport

from tests.operator.rollout.made_up.configured import Sources
from tests.operator.rollout.made_up.deployments import Pod


def state(
    pod: Pod,
    counts: Mapping[str, dict[str, Counts]],
    in_flight: Mapping[str, int],
    sources: Sources,
) -> PodState:
    """The word of one pod's sidecar; `counts` and `in_flight` are by revision."""
    identity = IdentityReport(
        compute_fp=pod.revision, repr_fp="r", incarnation="1", fields={"compute.x": "y"}
    )
    return PodState(
        ready=pod.ready,
        reason="Ready" if pod.ready else "WorkerStarting",
        message=".",
        model_id="m",
        identity=identity if pod.ready else None,
        traffic=_traffic(pod, counts, in_flight),
        configuration=sources.report(pod),
    )


def _traffic(
    pod: Pod, counts: Mapping[str, dict[str, Counts]], in_flight: Mapping[str, int]
) -> TrafficReport:
    plan = pod.plan
    if plan is None:
        return TrafficReport()
    versions = {
        each.revision: VersionReport(
            in_flight=in_flight.get(each.revision, 0), by_modality=counts.get(each.revision, {})
        )
        for each in (plan.stable, plan.canary)
        if each is not None
    }
    for revision, count in in_flight.items():
        versions.setdefault(revision, VersionReport(in_flight=count))
    return TrafficReport(epoch=plan.epoch, window=plan.window, versions=versions)
