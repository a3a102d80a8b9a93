"""How many time series there can be: counted from the list, and bounded."""

from __future__ import annotations

import pytest
from chiasm_contract.metric_cardinality import (
    OPEN_LABELS,
    BusyDay,
    num_series,
    series_of_day,
    series_of_operator,
    series_of_pod,
    series_of_resource,
)
from chiasm_contract.metric_spec import MetricSpec
from chiasm_contract.metric_specs import METRIC_SPECS


def spec(**more: object) -> MetricSpec:
    return MetricSpec("chiasm_x", "gauge", "x", "sidecar", "X.", **more)  # type: ignore[arg-type]


def test_every_combination_of_labels_counts() -> None:
    assert num_series(spec()) == 1
    assert num_series(spec(labels={"a": ("1", "2"), "b": ("1", "2", "3")})) == 6
    assert num_series(spec(labels={"source": ()})) == OPEN_LABELS["source"]
    with pytest.raises(KeyError, match="prompt"):
        num_series(spec(labels={"prompt": ()}))
    wait = MetricSpec("chiasm_w", "histogram", "s", "sidecar", "W.", {"a": ("1", "2")}, (1.0, 2.0))
    assert num_series(wait) == 2 * 5


def test_a_busy_day_is_bounded() -> None:
    """A Prometheus of 8 GiB holds about two million series."""
    assert series_of_pod(METRIC_SPECS) <= 1500
    assert series_of_resource(METRIC_SPECS) <= 60
    assert series_of_operator(METRIC_SPECS) <= 60
    at_once, in_all = series_of_day(METRIC_SPECS, BusyDay())
    assert at_once <= 600_000
    assert in_all <= 3_000_000


def test_a_day_is_the_sum_of_its_parts() -> None:
    specs = [
        spec(labels={"a": ("1", "2")}),
        MetricSpec("chiasm_operator_x", "gauge", "x", "operator", "X."),
        MetricSpec("chiasm_operator_y", "gauge", "y", "operator", "Y.", {"resource": ()}),
    ]
    day = BusyDay(resources=3, pods_of_each=5, generations=2, operators=1)
    assert series_of_day(specs, day) == (3 * 5 * 2 + 1 + 3, 3 * 5 * 2 * 2 + 1 + 3)


def test_every_label_is_a_closed_set_or_counted() -> None:
    """Nothing that a client sends becomes a label."""
    for each in METRIC_SPECS:
        for name, values in each.labels.items():
            assert values or name in OPEN_LABELS, f"{each.name}: {name}"
