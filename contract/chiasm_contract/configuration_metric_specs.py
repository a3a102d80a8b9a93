"""The rows of metrics about configuration and secrets: sources by name, never by value."""

from __future__ import annotations

from chiasm_contract.metric_spec import PER_PROCESS, MetricSpec

# "well", and how a request to a Vault or an OpenBao can fail; slow: no answer in time.
SERVER_OUTCOMES = (
    "well", "denied", "absent", "refused", "throttled", "sealed", "failed", "slow", "unreachable",
    "odd",
)  # fmt: skip
_SOURCE = {"source": PER_PROCESS}

CONFIGURATION_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "chiasm_config_environment_info", "gauge", "boolean", "sidecar",
        "Always 1; in which environment this pod and its revision are.",
        {"environment": PER_PROCESS, "revision": PER_PROCESS},
    ),
    MetricSpec(
        "chiasm_config_source_up", "gauge", "boolean", "sidecar",
        "1 while a source of the configuration can be asked; 0: the last good values stay in use.",
        _SOURCE,
    ),
    MetricSpec(
        "chiasm_config_offer_refused", "gauge", "boolean", "sidecar",
        "1 while a source offers a value that failed its proof, and so is not taken.", _SOURCE,
    ),
    MetricSpec(
        "chiasm_config_rotations_total", "counter", "values", "sidecar",
        "Values that took the place of others while the pod served, and values that were refused.",
        {**_SOURCE, "outcome": ("taken", "refused")},
    ),
    MetricSpec(
        "chiasm_config_lease_seconds_left", "gauge", "seconds", "sidecar",
        "How long the lease in use lives if nothing renews it; leased sources of the server only.",
        _SOURCE,
    ),
    MetricSpec(
        "chiasm_config_old_leases", "gauge", "leases", "sidecar",
        "Leases that are replaced, or were not taken, and are not revoked yet.", _SOURCE,
    ),
    MetricSpec(
        "chiasm_config_server_requests_total", "counter", "requests", "sidecar",
        "Requests to the Vault or OpenBao, by how they ended.", {"outcome": SERVER_OUTCOMES},
    ),
)  # fmt: skip
