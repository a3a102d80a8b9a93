"""What is counted of sources: by name, never by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from chiasm_contract.configuration import Configuration

from chiasm_sidecar.configuration.vault.faults import Kind
from chiasm_sidecar.metrics import Metrics

Outcome = Literal["taken", "refused"]


class ConfigMeters:
    """Counts into the sidecar's instruments; makes the series of each source at once."""

    def __init__(self, metrics: Metrics, configuration: Configuration, revision: str) -> None:
        self._metrics = metrics
        self._up = metrics.gauge("chiasm_config_source_up")
        self._refused = metrics.gauge("chiasm_config_offer_refused")
        self._old_leases = metrics.gauge("chiasm_config_old_leases")
        self._left = metrics.gauge("chiasm_config_lease_seconds_left")
        info = metrics.gauge("chiasm_config_environment_info")
        info.labels(environment=configuration.environment, revision=revision).set(1)
        for source in configuration.sources:
            self.up(source.name, False)
            self.refused(source.name, False)
            self.old_leases(source.name, 0)
            for outcome in ("taken", "refused"):
                self._rotated(source.name, outcome, 0)

    def up(self, source: str, up: bool) -> None:
        """Whether the source could be asked the last time."""
        self._up.labels(source=source).set(1 if up else 0)

    def refused(self, source: str, refused: bool) -> None:
        """Whether what is offered has failed its proof."""
        self._refused.labels(source=source).set(1 if refused else 0)

    def old_leases(self, source: str, count: int) -> None:
        """Leases that are replaced and not revoked yet."""
        self._old_leases.labels(source=source).set(count)

    def lease_left(self, source: str, seconds: Callable[[], float]) -> None:
        """Where to read how long a lease lives, at each exposition."""
        self._left.labels(source=source).set_function(seconds)

    def rotated(self, source: str, outcome: Outcome) -> None:
        """Another value is in use, or was refused."""
        self._rotated(source, outcome, 1)

    def _rotated(self, source: str, outcome: str, amount: float) -> None:
        self._metrics.count("chiasm_config_rotations_total", amount, source=source, outcome=outcome)

    def asked(self, fault: Kind | None) -> None:
        """The server was asked."""
        self._metrics.count("chiasm_config_server_requests_total", outcome=fault or "well")
