"""The operator's rows of metric_specs.py: its passes, and each resource as its status says it is.

Labels are `resource_namespace` and `resource`, not `namespace`: that one a scrape fills with the
operator's own. A resource that is gone has no series any more.
"""

from __future__ import annotations

from typing import Literal, get_args

from chiasm_contract.api.status import RolloutState
from chiasm_contract.conditions import ConditionType, Phase
from chiasm_contract.metric_spec import PER_RESOURCE, ROLES, MetricSpec

PassOutcome = Literal["settled", "unsettled", "gone", "deposed", "failed"]
PASS_OUTCOMES: tuple[PassOutcome, ...] = get_args(PassOutcome)
REPLICA_STATES = ("desired", "existing", "updated", "ready")
PASS_SECONDS_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_RESOURCE = {"resource_namespace": PER_RESOURCE, "resource": PER_RESOURCE}

OPERATOR_SPECS: tuple[MetricSpec, ...] = (
    # the process
    MetricSpec(
        "chiasm_operator_leader", "gauge", "boolean", "operator",
        "1 in the process that holds the lease and does the passes, 0 in those that wait.",
    ),
    MetricSpec(
        "chiasm_operator_resources", "gauge", "resources", "operator",
        "Resources that the leader looks after; 0 where the process waits.",
    ),
    MetricSpec(
        "chiasm_operator_passes_total", "counter", "passes", "operator",
        "Passes over one resource, by how they ended; unsettled: something is still to come, gone: "
        "the resource is deleted, deposed: another process leads, failed: it is tried again.",
        {"outcome": PASS_OUTCOMES},
    ),
    MetricSpec(
        "chiasm_operator_pass_seconds", "histogram", "seconds", "operator",
        "From the begin of a pass to its end, however it ended.", {}, PASS_SECONDS_BUCKETS,
    ),
    MetricSpec(
        "chiasm_operator_event_age_seconds", "gauge", "seconds", "operator",
        "Since a watch last told of any object. Each begins anew every five minutes and tells of "
        "whatever is there, so that more than ten are deafness where there are resources.",
    ),
    MetricSpec(
        "chiasm_operator_sweep_age_seconds", "gauge", "seconds", "operator",
        "Since the leader last listed its resources; 0 where the process waits.",
    ),
    # each resource, told by the leader alone
    MetricSpec(
        "chiasm_operator_resource_phase", "gauge", "boolean", "operator",
        "1 for the phase that a resource is in, 0 for the others.",
        {**_RESOURCE, "phase": tuple(map(str, Phase))},
    ),
    MetricSpec(
        "chiasm_operator_resource_condition", "gauge", "truth", "operator",
        "Each condition that a resource has: 1 true, 0 false, -1 unknown.",
        {**_RESOURCE, "condition": tuple(map(str, ConditionType))},
    ),
    MetricSpec(
        "chiasm_operator_resource_replicas", "gauge", "pods", "operator",
        "Pods of a resource; existing: of all revisions, updated and ready: of the present one.",
        {**_RESOURCE, "state": REPLICA_STATES},
    ),
    MetricSpec(
        "chiasm_operator_resource_weight_percent", "gauge", "percent", "operator",
        "Share of new conversations that a revision is to receive, by its role.",
        {**_RESOURCE, "role": ROLES},
    ),
    MetricSpec(
        "chiasm_operator_resource_rollout_state", "gauge", "boolean", "operator",
        "1 for what is being done about a new revision, 0 for the rest.",
        {**_RESOURCE, "state": get_args(RolloutState)},
    ),
    MetricSpec(
        "chiasm_operator_resource_step_age_seconds", "gauge", "seconds", "operator",
        "Since the present step of a rollout began; 0 without one.", _RESOURCE,
    ),
    MetricSpec(
        "chiasm_operator_resource_step_overdue_seconds", "gauge", "seconds", "operator",
        "Since the present step or look of a rollout should have ended; 0 before that.", _RESOURCE,
    ),
    MetricSpec(
        "chiasm_operator_resource_held_seconds", "gauge", "seconds", "operator",
        "Since the steps wait for pods that take up new configuration; 0 while they do not.",
        _RESOURCE,
    ),
    MetricSpec(
        "chiasm_operator_resource_revision_info", "gauge", "info", "operator",
        "Always 1; which revision has which role.",
        {**_RESOURCE, "role": ROLES, "revision": PER_RESOURCE},
    ),
    MetricSpec(
        "chiasm_operator_resource_cost_per_hour", "gauge", "currency", "operator",
        "What the existing pods of a resource cost an hour, by its spec.cost; none without that.",
        {**_RESOURCE, "currency": PER_RESOURCE},
    ),
)  # fmt: skip
