"""What the process tells is what the contract lists, read back by two parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from chiasm_contract.metric_specs import specs_of
from chiasm_operator.metering.exposition import Known, exposition, told
from chiasm_operator.metering.passes import PassCounts
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

Parse = Callable[[str], Iterable[Metric]]


def resource(name: str = "reader", **metadata: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "vision", "name": name, **metadata},
        "spec": {"replicas": 2, "cost": {"replicaHour": "3"}},
        "status": {
            "replicas": 2,
            "conditions": [{"type": "Ready", "status": "True"}],
            "rollout": {"stableRevision": "v1-a"},
        },
    }


def known() -> Known:
    counts = PassCounts()
    counts.note("settled", 0.02)
    counts.note("failed", 100.0)
    return Known(
        leads=True,
        counts=counts,
        event_age_seconds=7.0,
        sweep_age_seconds=3.0,
        resources=(resource(),),
        now_seconds=0.0,
    )


def samples(parse: Parse, of: Known, accept: str = "") -> dict[tuple[str, ...], float]:
    text = exposition(of, accept)[0].decode()
    return {
        (sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("parse", "accept", "form"),
    [
        (plain, "", "text/plain"),
        (openmetrics, "application/openmetrics-text;version=1.0.0", "application/openmetrics-text"),
    ],
)
def test_exposed_is_what_is_named(parse: Parse, accept: str, form: str) -> None:
    text, content_type = exposition(known(), accept)
    assert content_type.partition(";")[0] == form
    found = [sample for family in parse(text.decode()) for sample in family.samples]
    assert {each.name for each in found} == {
        name for spec in specs_of("operator") for name in spec.sample_names
    }
    by_name = {name: spec for spec in specs_of("operator") for name in spec.sample_names}
    for each in found:
        spec = by_name[each.name]
        assert set(each.labels) - {"le"} == set(spec.labels)
        for name, values in spec.labels.items():
            assert not values or each.labels[name] in values


def test_passes_are_counted_by_outcome_and_time() -> None:
    told = samples(plain, known())
    assert told["chiasm_operator_passes_total", "outcome=settled"] == 1
    assert told["chiasm_operator_passes_total", "outcome=failed"] == 1
    assert told["chiasm_operator_passes_total", "outcome=gone"] == 0
    assert told["chiasm_operator_pass_seconds_bucket", "le=0.025"] == 1
    assert told["chiasm_operator_pass_seconds_bucket", "le=60.0"] == 1
    assert told["chiasm_operator_pass_seconds_bucket", "le=+Inf"] == 2
    assert told[("chiasm_operator_pass_seconds_count",)] == 2
    assert told[("chiasm_operator_pass_seconds_sum",)] == 100.02


def test_the_series_of_a_resource_go_with_it() -> None:
    whose = ("resource=reader", "resource_namespace=vision")
    assert samples(plain, known())["chiasm_operator_resource_cost_per_hour", "currency=USD", *whose]
    without = samples(plain, replace(known(), resources=()))
    assert without[("chiasm_operator_resources",)] == 0
    assert not [key for key in without if key[0].startswith("chiasm_operator_resource_")]
    gone = resource("gone", deletionTimestamp="2026-05-01T12:00:00Z")
    assert told([resource(), gone]) == (resource(),)
