"""The metrics of traces on their way to a collector.

Rows go into `metric_specs.METRIC_SPECS`.
"""

from __future__ import annotations

from chiasm_contract.metric_spec import MetricSpec

SPAN_OUTCOMES = ("exported", "dropped", "failed")

TRACING_SPECS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "chiasm_trace_spans_total", "counter", "spans", "sidecar",
        "Spans of sampled requests, by what became of them; dropped: too many waited to be sent, "
        "failed: the collector did not take them.",
        {"outcome": SPAN_OUTCOMES},
    ),
)  # fmt: skip
