"""The metrics of a sidecar that divides requests between two revisions.

They count at the sidecar that a client reached, each request once: what a canary's own sidecar
answers for another one is not in these. Rows go into `metric_specs.METRIC_SPECS`.
"""

from __future__ import annotations

from chiasm_contract.metric_spec import FIRST_TOKEN_BUCKETS, MODALITIES, ROLES, MetricSpec

TRAFFIC_OUTCOMES = ("answered", "refused", "failed", "rerouted", "abandoned")
SHADOW_OUTCOMES = ("agreed", "differed", "failed", "late", "dropped")

TRAFFIC_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "chiasm_traffic_requests_total", "counter", "requests", "sidecar",
        "Requests of clients while there is a plan, by the revision that they were given to and "
        "how that ended; refused: 4xx, failed: 5xx or cut, rerouted: another revision answered "
        "instead and is counted too, abandoned: the client went away.",
        {"role": ROLES, "modality": MODALITIES, "outcome": TRAFFIC_OUTCOMES},
    ),
    MetricSpec(
        "chiasm_traffic_new_conversations_total", "counter", "conversations", "sidecar",
        "Conversations that were drawn by the plan's share, without overrides and pins.",
        {"role": ROLES},
    ),
    MetricSpec(
        "chiasm_traffic_first_token_seconds", "histogram", "seconds", "sidecar",
        "From the request's last byte to the first text of its answer, where that was made; whole "
        "answers only.",
        {"role": ROLES, "modality": MODALITIES}, FIRST_TOKEN_BUCKETS,
    ),
    MetricSpec(
        "chiasm_traffic_in_flight", "gauge", "requests", "sidecar",
        "Requests that a revision now answers for clients of this sidecar.", {"role": ROLES},
    ),
    MetricSpec(
        "chiasm_traffic_pins", "gauge", "conversations", "sidecar",
        "Conversations of which this sidecar knows the revision.",
    ),
    MetricSpec(
        "chiasm_traffic_pins_told_total", "counter", "conversations", "sidecar",
        "Conversations of which another sidecar was told the revision; dropped: too many waited.",
        {"outcome": ("told", "failed", "dropped")},
    ),
    MetricSpec(
        "chiasm_traffic_shadowed_total", "counter", "requests", "sidecar",
        "Repeatable requests answered by stable and chosen to be asked of the canary too; agreed: "
        "same text, failed: the canary gave no whole answer, late: it gave none in time while it "
        "answered others, dropped: too many were on their way, or the canary was full.",
        {"modality": MODALITIES, "outcome": SHADOW_OUTCOMES},
    ),
    MetricSpec(
        "chiasm_traffic_plan_epoch", "gauge", "epochs", "sidecar",
        "The plan that is followed; 0: none.",
    ),
    MetricSpec(
        "chiasm_traffic_plan_loads_total", "counter", "loads", "sidecar",
        "Times that the plan was read because it had changed; refused: it could not be followed, "
        "and the one from before stays in force.",
        {"outcome": ("taken", "refused")},
    ),
)  # fmt: skip
