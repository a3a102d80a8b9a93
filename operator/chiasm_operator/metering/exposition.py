"""The operator's exposition: read off what the process knows when somebody asks, kept nowhere.

So the series of a resource that is deleted go with it. Resources are told by the leader alone: two
processes that tell the same would be added up.

Must not know: Kubernetes clients, HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from chiasm_contract.metric_forms import NAMES_AS_THEY_ARE, OPENMETRICS, form_for
from chiasm_contract.metric_spec import MetricSpec
from chiasm_contract.metric_specs import specs_of
from chiasm_contract.operator_metric_specs import PASS_OUTCOMES
from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from chiasm_operator.metering.passes import PassCounts
from chiasm_operator.metering.readings import readings
from chiasm_operator.resource import Manifest

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_LABELS = {spec.name: tuple(spec.labels) for spec in specs_of("operator")}


@dataclass(frozen=True)
class Known:
    """What a process knows at one moment.

    Attributes:
        resources: their manifests, as far as this process looks after them.
        now_seconds: since 1970, by the clock that statuses are written by.
    """

    leads: bool
    counts: PassCounts
    event_age_seconds: float
    sweep_age_seconds: float
    resources: tuple[Manifest, ...]
    now_seconds: float


class _Collected(Collector):
    """One moment under the names of the contract."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def collect(self) -> Iterator[Family]:
        """Every family of the operator's rows."""
        families = {spec.name: _family(spec) for spec in specs_of("operator")}
        known, counts = self._known, self._known.counts
        own: Mapping[str, float] = {
            "chiasm_operator_leader": known.leads,
            "chiasm_operator_resources": len(known.resources),
            "chiasm_operator_event_age_seconds": known.event_age_seconds,
            "chiasm_operator_sweep_age_seconds": known.sweep_age_seconds,
        }
        for name, value in own.items():
            _add(families[name], [], value)
        for outcome in PASS_OUTCOMES:
            _add(families["chiasm_operator_passes_total"], [outcome], counts.outcomes[outcome])
        seconds = families["chiasm_operator_pass_seconds"]
        if isinstance(seconds, HistogramMetricFamily):
            seconds.add_metric([], [(_bound(b), n) for b, n in counts.buckets()], counts.seconds)
        for manifest in known.resources:
            _add_resource(families, manifest, known.now_seconds)
        yield from families.values()


def _bound(seconds: float) -> str:
    """As the label `le` has it."""
    return str(floatToGoString(seconds))  # type: ignore[no-untyped-call]


def _family(spec: MetricSpec) -> Family:
    labels = list(spec.labels)
    if spec.kind == "histogram":
        return HistogramMetricFamily(spec.name, spec.help, labels=labels)
    if spec.kind == "counter":
        return CounterMetricFamily(spec.name.removesuffix("_total"), spec.help, labels=labels)
    return GaugeMetricFamily(spec.name, spec.help, labels=labels)


def _add(family: Family, labels: list[str], value: float) -> None:
    if isinstance(family, HistogramMetricFamily):
        raise TypeError(f"{family.name} is a histogram; metric_specs.py says so, this is a bug")
    family.add_metric(labels, value)


def _add_resource(families: Mapping[str, Family], manifest: Manifest, now: float) -> None:
    metadata = manifest["metadata"]
    whose = {"resource_namespace": metadata["namespace"], "resource": metadata["name"]}
    for reading in readings(manifest, now):
        family = families[reading.name]
        labels: dict[str, str] = {**whose, **reading.labels}
        _add(family, [str(labels[name]) for name in _LABELS[reading.name]], reading.value)


def exposition(known: Known, accept: str) -> tuple[bytes, str]:
    """All metrics and their content type, in the form for who sends this Accept header."""
    registry = CollectorRegistry()
    registry.register(_Collected(known))
    form = form_for(accept)
    if form == OPENMETRICS:
        data: bytes = openmetrics.generate_latest(  # type: ignore[no-untyped-call]
            registry, escaping=NAMES_AS_THEY_ARE
        )
        return data, form
    return generate_latest(registry), form


def told(manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """Those that are not on their way out."""
    return tuple(each for each in manifests if "deletionTimestamp" not in each["metadata"])
