"""All that a sidecar says of its pod: its readiness, its traffic and its configuration."""

from __future__ import annotations

from chiasm_contract.messages import PodState

from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.readiness import Readiness
from chiasm_sidecar.traffic.division import Division


def pod_state(readiness: Readiness, division: Division, desk: Desk) -> PodState:
    """As it is now."""
    parts = {"traffic": division.report(), "configuration": desk.report()}
    return readiness.state.model_copy(update=parts)
