"""What answers cost, running, where resources say what a replica costs (`spec.cost`)."""

from __future__ import annotations

from chiasm_dashboards.board import (
    RATE,
    Board,
    Panel,
    Query,
    Row,
    per_second,
    pods,
    resources,
    share,
)

_COST = resources("chiasm_operator_resource_cost_per_hour")
# The operator's series name a resource's namespace themselves; a pod's have it from the scrape.
_WHOSE = "resource_namespace, resource"


def _of_resource(metric: str, more: str = "") -> str:
    """How fast a counter of pods grows in an hour, labelled as the operator labels resources."""
    rate = f"rate({pods(metric, more)}[{RATE}])"
    moved = f'label_replace({rate}, "resource_namespace", "${{1}}", "namespace", "(.*)")'
    return f"3600 * sum by ({_WHOSE}) ({moved})"


def _cost_of(number: float, metric: str, more: str = "") -> str:
    per_hour = _of_resource(metric, more)
    joined = f"on ({_WHOSE}) group_left () ({per_hour} > 0)"
    return f"{number:g} * sum by ({_WHOSE}, currency) ({_COST}) / {joined}"


_MONEY = Row(
    "Money",
    (
        Panel(
            "An hour",
            "short",
            "What the existing pods of each resource cost, a canary's included.",
            (Query(f"sum by ({_WHOSE}, currency) ({_COST})", "{{resource}} {{currency}}"),),
            kind="stacked",
        ),
        Panel(
            "1,000 requests",
            "short",
            "The hour's cost divided by what is answered well at present; idle pods make it rise.",
            (
                Query(
                    _cost_of(1000, "chiasm_sidecar_requests_total", 'code="200"'),
                    "{{resource}} {{currency}}",
                ),
            ),
        ),
        Panel(
            "1,000,000 tokens of answers",
            "short",
            "The same divided by the tokens that are generated.",
            (Query(_cost_of(1e6, "vllm:generation_tokens_total"), "{{resource}} {{currency}}"),),
        ),
    ),
)
_USE = Row(
    "What it buys",
    (
        Panel(
            "Time in use",
            "percentunit",
            "Share of its time that each worker computes. Much below 1 at the busiest hour: fewer "
            "pods would do.",
            (Query(per_second("chiasm_worker_step_seconds_total", "pod"), "{{pod}}"),),
        ),
        Panel(
            "Answers",
            "reqps",
            "By why they ended.",
            (
                Query(
                    per_second("vllm:request_success_total", "finished_reason"),
                    "{{finished_reason}}",
                ),
            ),
            kind="stacked",
        ),
        Panel(
            "Saved by caches",
            "percentunit",
            "Tokens of prompts that were not computed, and media that were not encoded.",
            (
                Query(
                    share(
                        per_second("vllm:prefix_cache_hits_total"),
                        per_second("vllm:prefix_cache_queries_total"),
                    ),
                    "tokens",
                ),
                Query(
                    share(
                        per_second("chiasm_worker_encode_calls_saved_total"),
                        f"({per_second('chiasm_worker_encode_calls_saved_total')} + "
                        f"{per_second('chiasm_worker_encode_calls_total')})",
                    ),
                    "media",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    "cost",
    "Chiasm: cost",
    "What answers cost, where resources say what a replica costs (spec.cost).",
    (_MONEY, _USE),
)
