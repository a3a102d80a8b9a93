"""What users feel, and whether everything stands."""

from __future__ import annotations

from chiasm_dashboards.board import (
    Board,
    Panel,
    Query,
    Row,
    per_second,
    pods,
    quantile,
    resources,
    share,
    total,
)

_REQUESTS = "chiasm_sidecar_requests_total"
_FIRST = "chiasm_sidecar_first_token_seconds"
_GAP = "chiasm_sidecar_inter_token_seconds"
_WHOLE = "vllm:e2e_request_latency_seconds"
_SHARES = (
    ("chiasm:slow_first_tokens", "first token"),
    ("chiasm:slow_tokens", "gap"),
    ("chiasm:failed_requests", "failed"),
)

_FELT = Row(
    "What users feel",
    (
        Panel(
            "Requests",
            "reqps",
            "By what they brought. Steps up and down here explain most of what is below.",
            (Query(per_second(_REQUESTS, "modality"), "{{modality}}"),),
            kind="stacked",
        ),
        Panel(
            "Failed",
            "percentunit",
            "Share of requests that were answered 5xx, by what they brought.",
            (
                Query(
                    share(
                        per_second(_REQUESTS, "modality", 'code=~"5.."'),
                        per_second(_REQUESTS, "modality"),
                    ),
                    "{{modality}}",
                ),
            ),
        ),
        Panel(
            "Refused",
            "reqps",
            "4xx by code. 429: more than the pods take; 401: tenants' keys; 499: clients that went "
            "away.",
            (Query(per_second(_REQUESTS, "code", 'code=~"4.."'), "{{code}}"),),
            kind="stacked",
        ),
        Panel(
            "First token, 95 of 100",
            "s",
            "From a request's last byte to its first text. Points are requests with a trace.",
            (Query(quantile(0.95, _FIRST, "modality"), "{{modality}}"),),
            exemplars=True,
        ),
        Panel(
            "First token, half and 99 of 100",
            "s",
            "What is usual beside what is rare.",
            (
                Query(quantile(0.5, _FIRST), "half"),
                Query(quantile(0.99, _FIRST), "99 of 100"),
            ),
            exemplars=True,
        ),
        Panel(
            "Between two pieces of text, 95 of 100",
            "s",
            "What makes an answer halt.",
            (Query(quantile(0.95, _GAP, "modality"), "{{modality}}"),),
            exemplars=True,
        ),
        Panel(
            "Whole answers",
            "s",
            "From the request's last byte to the answer's last; depends on how long answers are.",
            (
                Query(quantile(0.5, _WHOLE), "half"),
                Query(quantile(0.95, _WHOLE), "95 of 100"),
            ),
            exemplars=True,
        ),
        Panel(
            "Bad moments in the last hour",
            "percentunit",
            "What the burn-rate alerts are about; needs the recording rules that come with them.",
            tuple(
                Query(
                    f'{record}:ratio_rate1h{{namespace=~"$namespace", resource=~"$resource"}}',
                    f"{words}, {{{{modality}}}}",
                )
                for record, words in _SHARES
            ),
        ),
        Panel(
            "Tokens",
            "short",
            "Read and written per second.",
            (
                Query(per_second("vllm:prompt_tokens_total"), "prompt"),
                Query(per_second("vllm:generation_tokens_total"), "answer"),
            ),
        ),
    ),
)
_STANDS = Row(
    "How it stands",
    (
        Panel(
            "Resources by phase",
            "short",
            "As the operator sees them.",
            (
                Query(
                    f"sum by (phase) ({resources('chiasm_operator_resource_phase')})", "{{phase}}"
                ),
            ),
            kind="stacked",
        ),
        Panel(
            "Pods",
            "short",
            "Ready beside desired ones of each resource.",
            (
                Query(
                    f"sum by (resource, state) ({resources('chiasm_operator_resource_replicas')})",
                    "{{resource}} {{state}}",
                ),
            ),
        ),
        Panel(
            "Ready for requests",
            "short",
            "1 while a pod's sidecar lets requests in.",
            (Query(pods("chiasm_sidecar_ready"), "{{pod}}"),),
        ),
        Panel(
            "Requests under way",
            "short",
            "Between their first and last byte.",
            (Query(total("chiasm_sidecar_requests_in_progress", "resource"), "{{resource}}"),),
        ),
        Panel(
            "Requests that wait",
            "short",
            "For cache blocks, by what they brought.",
            (Query(total("chiasm_worker_requests_waiting", "modality"), "{{modality}}"),),
            kind="stacked",
        ),
        Panel(
            "Workers that failed a request",
            "reqps",
            "By how; each of these is an answer of 5xx.",
            (
                Query(per_second("chiasm_sidecar_worker_failures_total", "reason"), "{{reason}}"),
                Query(per_second("chiasm_sidecar_worker_restarts_total"), "restarts"),
            ),
        ),
        Panel(
            "Spans of traces",
            "short",
            "Per second, by what became of them; dropped and failed ones are missing in traces.",
            (Query(per_second("chiasm_trace_spans_total", "outcome"), "{{outcome}}"),),
        ),
    ),
)

BOARD = Board(
    "overview",
    "Chiasm: overview",
    "Start here: what users feel, and whether everything stands.",
    (_FELT, _STANDS),
)
