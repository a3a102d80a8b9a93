"""charts/chiasm/alerts/slo.yaml: what users feel, by modality, as the speed at which a month's
budget of bad moments is used up.

The windows and factors are those of Google's SRE workbook, chapter 5: a long window says that it
matters, a short one that it still goes on. Two per cent of a month's budget in an hour (14.4 times
too fast) and five in six hours (6 times) wake somebody; ten in three days are a ticket.

Must not know: Helm, Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

BY = "namespace, resource, modality"
# Long and short window, and how many times too fast.
FAST = (("1h", "5m", 14.4), ("6h", "30m", 6.0))
SLOW = (("1d", "2h", 3.0), ("3d", "6h", 1.0))
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
# One bad answer of ten at night would wake somebody.
FEWEST = {"1h": 20, "1d": 100}
PAGE = "docs/runbooks/slo.md"


@dataclass(frozen=True)
class Objective:
    """One promise to users.

    Attributes:
        alert: the stem of both alerts' names.
        record: the stem of the names of the recorded shares of bad moments.
        share: PromQL of that share; WINDOW stands for the window.
        budget: the share that may be bad.
        summary: of the alerts.
        description: what is counted.
    """

    alert: str
    record: str
    share: str
    budget: float
    summary: str
    description: str


def _rate(series: str) -> str:
    return f"sum by ({BY}) (rate({series}[WINDOW]))"


def _slower_than(metric: str, limit: str) -> str:
    within = _rate(f'{metric}_bucket{{le="{limit}"}}')
    return f"1 - {within} / ({_rate(f'{metric}_count')} > 0)"


def _failed(metric: str) -> str:
    bad = _rate(f'{metric}{{code=~"5.."}}')
    return f"{bad} / ({_rate(metric)} > 0)"


OBJECTIVES = (
    Objective(
        "ChiasmFirstTokenBurn",
        "chiasm:slow_first_tokens",
        _slower_than("chiasm_sidecar_first_token_seconds", "3.0"),
        0.01,
        "First tokens come late",
        "The objective is 99 % within the limit, which is the le of the recording rules.",
    ),
    Objective(
        "ChiasmTokenGapBurn",
        "chiasm:slow_tokens",
        _slower_than("chiasm_sidecar_inter_token_seconds", "0.2"),
        0.01,
        "Answers come haltingly",
        "The objective is 99 % of the gaps between two pieces of text within the limit, which is "
        "the le of the recording rules.",
    ),
    Objective(
        "ChiasmErrorBurn",
        "chiasm:failed_requests",
        _failed("chiasm_sidecar_requests_total"),
        0.001,
        "Requests fail",
        "The objective is 99.9 % without an answer of 5xx.",
    ),
)


def _records() -> Iterator[dict[str, Any]]:
    for objective in OBJECTIVES:
        for window in WINDOWS:
            yield {
                "record": f"{objective.record}:ratio_rate{window}",
                "expr": objective.share.replace("WINDOW", window),
            }
    for window in FEWEST:
        requests = f"increase(chiasm_sidecar_requests_total[{window}])"
        yield {"record": f"chiasm:requests:increase{window}", "expr": f"sum by ({BY}) ({requests})"}


def _burns(objective: Objective, pairs: tuple[tuple[str, str, float], ...], enough: str) -> str:
    def above(window: str, factor: float) -> str:
        return f"{objective.record}:ratio_rate{window} > {factor * objective.budget:g}"

    either = " or ".join(
        f"({above(long, factor)} and {above(short, factor)})" for long, short, factor in pairs
    )
    return f"({either}) and chiasm:requests:increase{enough} > {FEWEST[enough]}"


def _alerts() -> Iterator[dict[str, Any]]:
    for objective in OBJECTIVES:
        for kind, pairs, enough, severity, wait in (
            ("Fast", FAST, "1h", "critical", "2m"),
            ("Slow", SLOW, "1d", "warning", "15m"),
        ):
            name = f"{objective.alert}{kind}"
            yield {
                "alert": name,
                "expr": _burns(objective, pairs, enough),
                "for": wait,
                "labels": {"severity": severity},
                "annotations": {
                    "summary": f"{objective.summary}: {{{{ $labels.resource }}}}, "
                    "{{ $labels.modality }}.",
                    "description": f"{{{{ $value | humanizePercentage }}}} of the moments in the "
                    f"long window are bad. {objective.description}",
                    "runbook_url": f"{PAGE}#{name.lower()}",
                },
            }


def rules() -> str:
    """The file's text."""
    groups = [
        {"name": "chiasm-slo-shares", "rules": list(_records())},
        {"name": "chiasm-slo", "rules": list(_alerts())},
    ]
    head = "# Written by `make generate` from observability/chiasm_alerts/burn_rate.py.\n"
    return head + yaml.safe_dump({"groups": groups}, sort_keys=False, width=100)
