"""How many time series the metrics make on a busy day: what a Prometheus must hold for them.

Closed label sets are counted in full, as if every combination occurred; of an open one (a
resource's name, a source's) a number is assumed here, and nowhere else. Must not know: which
metrics there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from chiasm_contract.metric_spec import MetricSpec

# Values of each open label in one process, or for one resource.
OPEN_LABELS: Mapping[str, int] = {
    "model_name": 1,
    "block_size": 1,
    "num_gpu_blocks": 1,
    "enable_prefix_caching": 1,
    "environment": 1,
    "source": 8,
    "resource_namespace": 1,
    "resource": 1,
    "revision": 1,  # one has one role
    "currency": 1,
}
_OF_A_RESOURCE = "resource"


@dataclass(frozen=True)
class BusyDay:
    """A day on which everything is used at once.

    Attributes:
        pods_of_each: that a resource has at a time.
        generations: of its pods in that day: each roll-out brings all of them anew.
        operators: processes of the operator.
    """

    resources: int = 50
    pods_of_each: int = 8
    generations: int = 5
    operators: int = 2


def num_series(spec: MetricSpec) -> int:
    """Time series of one family in one process, or for one resource.

    Raises: KeyError for an open label of which nothing is assumed.
    """
    sets = prod(len(values) or OPEN_LABELS[name] for name, values in spec.labels.items())
    if spec.kind == "histogram":
        return sets * (len(spec.buckets) + 3)  # the bucket without an end, count, sum
    return sets


def series_of_pod(specs: Sequence[MetricSpec]) -> int:
    """What one pod of a resource exposes."""
    return sum(num_series(spec) for spec in specs if spec.part != "operator")


def series_of_resource(specs: Sequence[MetricSpec]) -> int:
    """What the operator exposes for one resource."""
    return sum(num_series(spec) for spec in specs if _OF_A_RESOURCE in spec.labels)


def series_of_operator(specs: Sequence[MetricSpec]) -> int:
    """What one process of the operator exposes of itself."""
    own = [each for each in specs if each.part == "operator" and _OF_A_RESOURCE not in each.labels]
    return sum(map(num_series, own))


def series_of_day(specs: Sequence[MetricSpec], day: BusyDay) -> tuple[int, int]:
    """Time series at one moment, and all that came into being in that day."""
    pods = day.resources * day.pods_of_each * series_of_pod(specs)
    others = day.operators * series_of_operator(specs) + day.resources * series_of_resource(specs)
    return pods + others, pods * day.generations + others


def cardinality_lines(specs: Sequence[MetricSpec]) -> list[str]:
    """The same for the reference page."""
    day = BusyDay()
    at_once, in_all = series_of_day(specs, day)
    return [
        "",
        "## How many time series",
        "",
        "Every combination of labels counted, with "
        f"{OPEN_LABELS['source']} sources of configuration.",
        "",
        "| of | series |",
        "|---|---|",
        f"| a pod, by its sidecar | {series_of_pod(specs)} |",
        f"| a process of the operator | {series_of_operator(specs)} |",
        f"| a resource, by the operator | {series_of_resource(specs)} |",
        f"| {day.resources} resources with {day.pods_of_each} pods each, at one moment "
        f"| {at_once} |",
        f"| the same through a day on which all pods are replaced {day.generations - 1} times "
        f"| {in_all} |",
    ]
