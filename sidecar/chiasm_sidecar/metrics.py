"""The sidecar's instruments, built from the contract's rows, and one exposition for the pod."""

from __future__ import annotations

import itertools

import prometheus_client
from chiasm_contract.messages import MEDIA_NAMES, Usage
from chiasm_contract.metric_forms import PLAIN, media_type
from chiasm_contract.metric_spec import KNOWN_MODALITIES, MetricSpec
from chiasm_contract.metric_specs import specs_of
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from chiasm_sidecar.exposition import WorkerPart, encoded, joined
from chiasm_sidecar.front_door.media import MediaFile

_NOTHING = WorkerPart()


class Metrics:
    """Counts what passes through one sidecar."""

    def __init__(self, model_id: str) -> None:
        # "_created" series are an OpenMetrics detail that would double the exposition.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._model_id = model_id
        self._instruments = {spec.name: self._instrument(spec) for spec in specs_of("sidecar")}
        self._counters: dict[tuple[str, ...], Counter] = {}
        for spec in specs_of("sidecar"):
            self._create_series(spec)
        self._first_token = self.histogram("vllm:time_to_first_token_seconds")
        self._inter_token = self.histogram("vllm:inter_token_latency_seconds")
        self._first_token_of = self._by_modality("chiasm_sidecar_first_token_seconds")
        self._inter_token_of = self._by_modality("chiasm_sidecar_inter_token_seconds")
        self._request_latency = self.histogram("vllm:e2e_request_latency_seconds")
        self._prompt_tokens = self.histogram("vllm:request_prompt_tokens")
        self._generation_tokens = self.histogram("vllm:request_generation_tokens")
        self.body_bytes = self.histogram("chiasm_sidecar_request_body_bytes")
        self._media_bytes = {
            kind: self.histogram(f"chiasm_sidecar_{kind}_bytes") for kind in MEDIA_NAMES
        }
        self.in_progress = self.gauge("chiasm_sidecar_requests_in_progress")
        self.ready = self.gauge("chiasm_sidecar_ready")

    def _instrument(self, spec: MetricSpec) -> Counter | Gauge | Histogram:
        labels = list(spec.labels)
        if spec.kind == "histogram":
            return Histogram(
                spec.name, spec.help, labels, buckets=spec.buckets, registry=self.registry
            )
        kind = Counter if spec.kind == "counter" else Gauge
        return kind(spec.name, spec.help, labels, registry=self.registry)

    def _create_series(self, spec: MetricSpec) -> None:
        """Start each series of a closed label set at 0, so that rates see the first increase."""
        if spec.labels:
            # Series of a configuration's sources begin with it (configuration/meters.py).
            own = {"model_name": (self._model_id,)}
            sets = [values or own.get(name, ()) for name, values in spec.labels.items()]
            for values in itertools.product(*sets):
                self._instruments[spec.name].labels(*values)

    def _labelled(self, name: str) -> dict[str, str]:
        needs_model = "model_name" in self._instruments[name]._labelnames
        return {"model_name": self._model_id} if needs_model else {}

    def histogram(self, name: str) -> Histogram:
        """The histogram `name`, of this model if it is labelled with one."""
        instrument, labels = self._instruments[name], self._labelled(name)
        child = instrument.labels(**labels) if labels else instrument
        if not isinstance(child, Histogram):
            raise TypeError(f"{name} is no histogram; metric_specs.py says otherwise")
        return child

    def _by_modality(self, name: str) -> dict[str, Histogram]:
        instrument = self._instruments[name]
        if not isinstance(instrument, Histogram):
            raise TypeError(f"{name} is no histogram; metric_specs.py says otherwise")
        return {modality: instrument.labels(modality) for modality in KNOWN_MODALITIES}

    def gauge(self, name: str) -> Gauge:
        """The gauge `name`."""
        instrument = self._instruments[name]
        if not isinstance(instrument, Gauge):
            raise TypeError(f"{name} is no gauge; metric_specs.py says otherwise")
        return instrument

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to the counter `name`."""
        key = (name, *labels.values())
        child = self._counters.get(key)
        if child is None:
            child = self._counters[key] = self._counter(name, labels)
        child.inc(amount)

    def _counter(self, name: str, labels: dict[str, str]) -> Counter:
        instrument = self._instruments[name]
        every = {**self._labelled(name), **labels}
        child = instrument.labels(**every) if every else instrument
        if not isinstance(child, Counter):
            raise TypeError(f"{name} is no counter; metric_specs.py says otherwise")
        return child

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one reading to the histogram `name`."""
        child = self._instruments[name].labels(**labels)
        if not isinstance(child, Histogram):
            raise TypeError(f"{name} is no histogram; metric_specs.py says otherwise")
        child.observe(value)

    def total(self, name: str, **labels: str) -> float:
        """The sum of the series of the counter `name` that have these labels."""
        return sum(
            sample.value
            for family in self._instruments[name].collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def admitted(self, media: list[MediaFile]) -> None:
        """Count the files of one admitted request."""
        for file in media:
            self.count(f"chiasm_sidecar_{file.kind}s_total", format=file.format)
            self._media_bytes[file.kind].observe(len(file.data))

    def first_token(self, modality: str, seconds: float, trace_id: str | None) -> None:
        """The first text of an answer came; `trace_id` of a request whose trace is kept."""
        for histogram in (self._first_token, self._first_token_of[modality]):
            histogram.observe(seconds, _exemplar(trace_id))

    def next_token(self, modality: str, seconds: float, trace_id: str | None) -> None:
        """More text came, so long after the last."""
        for histogram in (self._inter_token, self._inter_token_of[modality]):
            histogram.observe(seconds, _exemplar(trace_id))

    def ended(self, status: int, modality: str) -> None:
        """Count one request of a client, however it ended."""
        self.count("chiasm_sidecar_requests_total", code=str(status), modality=modality)

    def finished(self, reason: str, usage: Usage, seconds: float, trace_id: str | None) -> None:
        """Count one finished answer."""
        self._request_latency.observe(seconds, _exemplar(trace_id))
        self.count("vllm:request_success_total", finished_reason=reason)
        self._prompt_tokens.observe(usage.prompt_tokens)
        self._generation_tokens.observe(usage.completion_tokens)

    def exposition(self, worker: WorkerPart = _NOTHING, form: str = PLAIN) -> tuple[bytes, str]:
        """Everything this pod exposes, and its content type: `form`, or the plain one where the
        worker speaks no other."""
        if worker.text and media_type(worker.content_type) != media_type(form):
            form = PLAIN
        return joined(encoded(self.registry, form), worker.text).encode(), form


def _exemplar(trace_id: str | None) -> dict[str, str] | None:
    return None if trace_id is None else {"trace_id": trace_id}
