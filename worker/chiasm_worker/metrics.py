"""The worker's metrics: read off the engine's own counters when somebody asks.

Which metrics exist, with their words and labels, says chiasm_contract/metric_specs.py; this module
only says where each value comes from.

Must not know: HTTP routes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from chiasm_contract.block_guard import REJECT_FIELDS, Outcome, Verdict
from chiasm_contract.config import COMPRESSION_RATIOS
from chiasm_contract.metric_forms import NAMES_AS_THEY_ARE, OPENMETRICS, form_for
from chiasm_contract.metric_spec import BLOCK_MODALITIES, KNOWN_MODALITIES
from chiasm_contract.metric_specs import specs_of
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from chiasm_worker.engine.engine import Engine
from chiasm_worker.kvcache.rebuild_cost import BlockKind

Family = CounterMetricFamily | GaugeMetricFamily

VALUES: Mapping[str, Callable[[Engine], float]] = {
    "vllm:num_requests_running": lambda e: e.scheduler.num_running,
    "vllm:num_requests_waiting": lambda e: e.scheduler.num_waiting,
    "vllm:kv_cache_usage_perc": lambda e: e.pool.num_used / e.pool.num_blocks,
    "vllm:prefix_cache_queries_total": lambda e: e.scheduler.counters.prefix_query_tokens,
    "vllm:prefix_cache_hits_total": lambda e: e.scheduler.counters.prefix_hit_tokens,
    "vllm:prompt_tokens_total": lambda e: e.totals.prompt_tokens,
    "vllm:generation_tokens_total": lambda e: e.totals.generation_tokens,
    "vllm:num_preemptions_total": lambda e: e.scheduler.counters.num_preemptions,
    "vllm:mm_cache_queries_total": lambda e: e.scheduler.counters.media_queries,
    "vllm:mm_cache_hits_total": lambda e: e.scheduler.counters.media_hits,
    "chiasm_worker_encode_calls_total": lambda e: e.runner.encoding.num_items,
    "chiasm_worker_encoder_batches_total": lambda e: e.runner.encoding.num_batches,
    "chiasm_worker_encoder_seconds_total": lambda e: e.runner.encoding.seconds,
    "chiasm_worker_encoder_rows_total": lambda e: e.runner.encoding.num_rows,
    "chiasm_worker_encoder_padding_rows_total": lambda e: e.runner.encoding.num_padding_rows,
    "chiasm_worker_uncompressed_image_tokens_total": lambda e: e.totals.uncompressed_image_tokens,
    "chiasm_worker_steps_total": lambda e: e.totals.steps,
    "chiasm_worker_step_tokens_total": lambda e: e.totals.step_tokens,
    "chiasm_worker_step_seconds_total": lambda e: e.totals.step_seconds,
    "chiasm_worker_model_seconds_total": lambda e: e.totals.model_seconds,
    "chiasm_worker_requests_failed_total": lambda e: e.totals.failed,
    "chiasm_worker_requests_aborted_total": lambda e: e.totals.aborted,
    "chiasm_worker_tier_connected": lambda e: e.tier_link.staging is not None,
    "chiasm_worker_engine_generation": lambda e: e.tier_link.engine_gen,
    "chiasm_worker_tier_skipped_blocks_total": lambda e: e.tier_link.counters.skipped_blocks,
}
FETCH_OUTCOMES = ("answered", "timeout", "unavailable")
MODALITIES = ("text", "image", "video", "audio")
BLOCK_STATES: Mapping[str, Callable[[Engine], float]] = {
    "free": lambda e: e.pool.num_free,
    "cached": lambda e: e.pool.num_cached,
    "used": lambda e: e.pool.num_used,
}
BY_LABEL: Mapping[str, tuple[str, Callable[[Engine], Mapping[str, float]]]] = {
    "chiasm_worker_blocks": (
        "state",
        lambda e: {state: value(e) for state, value in BLOCK_STATES.items()},
    ),
    "chiasm_worker_block_evictions_total": (
        "kind",
        lambda e: {kind.value: e.pool.num_evictions[kind] for kind in BlockKind},
    ),
    "chiasm_worker_findable_blocks": (
        "kind",
        lambda e: {
            kind.value: sum(e.pool.num_findable[kind, each] for each in BLOCK_MODALITIES)
            for kind in BlockKind
        },
    ),
    "chiasm_worker_encode_calls_saved_total": (
        "by",
        lambda e: {
            "encoder_cache": e.scheduler.counters.media_hits,
            "prefix_cache": e.scheduler.counters.media_in_prefix,
        },
    ),
    "chiasm_worker_requests_waiting": (
        "modality",
        lambda e: dict.fromkeys(KNOWN_MODALITIES, 0) | e.scheduler.waiting_modalities(),
    ),
    "chiasm_worker_image_tokens_total": (
        "compression",
        lambda e: {str(ratio): e.totals.image_tokens[ratio] for ratio in COMPRESSION_RATIOS},
    ),
    "chiasm_worker_rebuild_seconds_per_token": (
        "modality",
        lambda e: {name: e.pool.costs.seconds_per_token(name) for name in MODALITIES},
    ),
    "chiasm_worker_tier_fetches_total": (
        "outcome",
        lambda e: {name: e.tier_link.counters.fetches[name] for name in FETCH_OUTCOMES},
    ),
    "chiasm_worker_tier_restored_tokens_total": (
        "kind",
        lambda e: {kind.value: e.tier_link.counters.restored_tokens[kind] for kind in BlockKind},
    ),
    "chiasm_worker_tier_offered_blocks_total": (
        "kind",
        lambda e: {kind.value: e.tier_link.counters.offered_blocks[kind] for kind in BlockKind},
    ),
    "chiasm_worker_tier_rejects_total": (
        "field",
        lambda e: {
            name: e.tier_link.counters.taken[Verdict(Outcome.REJECT, name)]
            for name in REJECT_FIELDS
        },
    ),
}


def tier_verdicts(engine: Engine) -> Iterable[tuple[Mapping[str, str], float]]:
    """The samples of chiasm_worker_tier_verdicts_total: who judged, and how it ended."""
    counters = engine.tier_link.counters
    by_op = {"get_kv": counters.found, "commit": counters.taken, "update_kv": counters.stored}
    for op, verdicts in by_op.items():
        known = list(verdicts.items())  # At once: another thread may be counting.
        for outcome in Outcome:
            count = sum(num for verdict, num in known if verdict.outcome is outcome)
            yield {"op": op, "outcome": outcome.name.lower()}, count


def findable_bytes(engine: Engine) -> Iterable[tuple[Mapping[str, str], float]]:
    """The samples of chiasm_worker_findable_bytes."""
    for kind, modality in itertools.product(BlockKind, BLOCK_MODALITIES):
        num_blocks = engine.pool.num_findable[kind, modality]
        yield {"kind": kind.value, "modality": modality}, num_blocks * engine.spec.record_bytes


BY_LABELS: Mapping[str, Callable[[Engine], Iterable[tuple[Mapping[str, str], float]]]] = {
    "chiasm_worker_tier_verdicts_total": tier_verdicts,
    "chiasm_worker_findable_bytes": findable_bytes,
}


class EngineCollector(Collector):
    """One engine's values under the names of the contract."""

    def __init__(self, engine: Engine, model_id: str) -> None:
        self._engine = engine
        self._model_id = model_id

    def collect(self) -> Iterable[Family]:
        """Every metric of the worker's rows."""
        for spec in specs_of("worker"):
            kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
            family = kind(spec.name.removesuffix("_total"), spec.help, labels=list(spec.labels))
            for labels, value in self._samples(spec.name):
                family.add_metric([labels[name] for name in spec.labels], value)
            yield family

    def _samples(self, name: str) -> Iterable[tuple[Mapping[str, str], float]]:
        model = {"model_name": self._model_id}
        if name in BY_LABEL:
            label, values = BY_LABEL[name]
            for value_name, value in values(self._engine).items():
                yield {**model, label: value_name}, value
        elif name in BY_LABELS:
            for labels, value in BY_LABELS[name](self._engine):
                yield {**model, **labels}, value
        elif name == "vllm:cache_config_info":
            limits = self._engine.limits
            yield (
                {
                    **model,
                    "block_size": str(limits.block_size),
                    "num_gpu_blocks": str(self._engine.pool.num_blocks),
                    "enable_prefix_caching": str(limits.prefix_caching),
                },
                1.0,
            )
        else:
            yield model, VALUES[name](self._engine)


def exposition(engine: Engine, model_id: str, accept: str) -> tuple[bytes, str]:
    """All metrics and their content type, in the form for who sends this Accept header."""
    registry = CollectorRegistry()
    registry.register(EngineCollector(engine, model_id))
    form = form_for(accept)
    if form == OPENMETRICS:
        return openmetrics.generate_latest(registry, escaping=NAMES_AS_THEY_ARE), form
    return generate_latest(registry), form
