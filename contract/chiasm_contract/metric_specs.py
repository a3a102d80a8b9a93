"""The one list of metrics: dashboards, alert rules and docs may name nothing else.

vLLM's names where the meaning is the same, ours under `chiasm_`. A counter's name ends in
`_total`, the way it is exposed. Label values are closed sets, or one value for a process's life
(`model_name`), or a configuration's (`source`): nothing that a client sends becomes a label.

Must not know: the library that counts. Each part builds its instruments from its own rows, and a
test in each part compares what it exposes with the rows.
"""

from __future__ import annotations

from chiasm_contract.block_guard import REJECT_FIELDS
from chiasm_contract.block_record import MALFORMED_REASONS
from chiasm_contract.configuration_metric_specs import CONFIGURATION_SPECS
from chiasm_contract.metric_cardinality import cardinality_lines
from chiasm_contract.metric_spec import (
    AUDIO_FORMATS,
    BLOCK_KINDS,
    BLOCK_MODALITIES,
    BYTES_BUCKETS,
    CHECK_SECONDS_BUCKETS,
    FIRST_TOKEN_BUCKETS,
    IMAGE_FORMATS,
    KNOWN_MODALITIES,
    KV_OUTCOMES,
    KV_TIERS,
    MODALITIES,
    MODEL,
    PEER_REFUSALS,
    SECONDS_BUCKETS,
    STATUS_CODES,
    TOKEN_BUCKETS,
    VIDEO_FORMATS,
    MetricSpec,
    Part,
)
from chiasm_contract.operator_metric_specs import OPERATOR_SPECS
from chiasm_contract.tracing_metric_specs import TRACING_SPECS
from chiasm_contract.traffic_metric_specs import TRAFFIC_SPECS
from chiasm_contract.worker_metric_specs import WORKER_SPECS

SIDECAR_SPECS: tuple[MetricSpec, ...] = (
    # sidecar: requests as clients see them
    MetricSpec(
        "vllm:time_to_first_token_seconds", "histogram", "seconds", "sidecar",
        "From the request's last byte to the first text of its answer.", MODEL, SECONDS_BUCKETS,
    ),
    MetricSpec(
        "vllm:inter_token_latency_seconds", "histogram", "seconds", "sidecar",
        "Between two consecutive pieces of text of one answer.", MODEL, SECONDS_BUCKETS,
    ),
    MetricSpec(
        "vllm:e2e_request_latency_seconds", "histogram", "seconds", "sidecar",
        "From the request's last byte to the last byte of its answer, finished requests only.",
        MODEL, SECONDS_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_first_token_seconds", "histogram", "seconds", "sidecar",
        "The same as vllm:time_to_first_token_seconds by what the request brought.",
        {"modality": KNOWN_MODALITIES}, FIRST_TOKEN_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_inter_token_seconds", "histogram", "seconds", "sidecar",
        "The same as vllm:inter_token_latency_seconds by what the request brought.",
        {"modality": KNOWN_MODALITIES}, FIRST_TOKEN_BUCKETS,
    ),
    MetricSpec(
        "vllm:request_success_total", "counter", "requests", "sidecar",
        "Requests that ended without a fault, by why they ended; abort: the client went away.",
        {**MODEL, "finished_reason": ("stop", "length", "abort")},
    ),
    MetricSpec(
        "vllm:request_prompt_tokens", "histogram", "tokens", "sidecar",
        "Prompt tokens of a finished request, pictures included.", MODEL, TOKEN_BUCKETS,
    ),
    MetricSpec(
        "vllm:request_generation_tokens", "histogram", "tokens", "sidecar",
        "Generated tokens of a finished request.", MODEL, TOKEN_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_requests_total", "counter", "requests", "sidecar",
        "Chat requests of clients, where these asked, by status code and by what they brought; "
        "499: the client went away.",
        {"code": STATUS_CODES, "modality": MODALITIES},
    ),
    MetricSpec(
        "chiasm_sidecar_requests_in_progress", "gauge", "requests", "sidecar",
        "Chat requests now between their first and last byte.",
    ),
    MetricSpec(
        "chiasm_sidecar_request_body_bytes", "histogram", "bytes", "sidecar",
        "Size of chat request bodies that were read to their end.", {}, BYTES_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_images_total", "counter", "pictures", "sidecar",
        "Pictures admitted to the worker, by the format that their bytes really have.",
        {"format": IMAGE_FORMATS},
    ),
    MetricSpec(
        "chiasm_sidecar_image_bytes", "histogram", "bytes", "sidecar",
        "Size of admitted pictures as files, before anything decodes them.", {}, BYTES_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_videos_total", "counter", "videos", "sidecar",
        "Videos admitted to the worker, by the container that their bytes really have.",
        {"format": VIDEO_FORMATS},
    ),
    MetricSpec(
        "chiasm_sidecar_video_bytes", "histogram", "bytes", "sidecar",
        "Size of admitted videos as files, before anything decodes them.", {}, BYTES_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_audios_total", "counter", "sounds", "sidecar",
        "Sounds admitted to the worker, by the format that their bytes really have.",
        {"format": AUDIO_FORMATS},
    ),
    MetricSpec(
        "chiasm_sidecar_audio_bytes", "histogram", "bytes", "sidecar",
        "Size of admitted sounds as files, before anything decodes them.", {}, BYTES_BUCKETS,
    ),
    MetricSpec(
        "chiasm_sidecar_worker_failures_total", "counter", "requests", "sidecar",
        "Chat requests that the worker did not answer to the end.",
        {"reason": ("unreachable", "cut", "timeout", "replaced")},
    ),
    # sidecar: may this pod serve
    MetricSpec(
        "chiasm_sidecar_ready", "gauge", "boolean", "sidecar",
        "1 while the worker is healthy, its identity is the expected one and a picture has gone "
        "through the model.",
    ),
    MetricSpec(
        "chiasm_sidecar_identity_checks_total", "counter", "checks", "sidecar",
        "Comparisons of the worker's KV identity with the expected one, by verdict.",
        {"outcome": ("admit", "reject")},
    ),
    MetricSpec(
        "chiasm_sidecar_probe_pictures_total", "counter", "pictures", "sidecar",
        "Built-in pictures sent through the model before reporting ready, by outcome.",
        {"outcome": ("passed", "failed")},
    ),
    MetricSpec(
        "chiasm_sidecar_tenant_key_loads_total", "counter", "loads", "sidecar",
        "Times that tenants' API keys were read because they had changed; refused: they could not "
        "be used, and those from before stay in force.",
        {"outcome": ("taken", "refused")},
    ),
    MetricSpec(
        "chiasm_sidecar_worker_restarts_total", "counter", "restarts", "sidecar",
        "Times that a new incarnation of the worker appeared after the first.",
    ),
    # sidecar: cache blocks in the memory tiers
    MetricSpec(
        "chiasm_kv_version_check_total", "counter", "records", "sidecar",
        "Records judged by the guard before they went on, by where they came from (get_kv: a tier; "
        "update_kv: the worker, or a tier that holds another one) and how it ended.",
        {"tier": ("worker", *KV_TIERS), "op": ("get_kv", "update_kv"), "outcome": KV_OUTCOMES},
    ),
    MetricSpec(
        "chiasm_kv_version_reject_total", "counter", "records", "sidecar",
        "Records of something else than what was asked for, by the first field that differs; "
        "generation: asked or offered before the engine's last swap.",
        {"field": REJECT_FIELDS},
    ),
    MetricSpec(
        "chiasm_kv_check_seconds", "histogram", "seconds", "sidecar",
        "Time to judge one batch of records, checksums of payloads excluded.", {},
        CHECK_SECONDS_BUCKETS,
    ),
    MetricSpec(
        "chiasm_kv_torn_read_total", "counter", "records", "sidecar",
        "Records whose two ends differ: read while they were written.",
    ),
    MetricSpec(
        "chiasm_kv_quarantined_bytes_total", "counter", "bytes", "sidecar",
        "Records with wrong bytes, or two contents under one key, taken out of their tier.",
    ),
    MetricSpec(
        "chiasm_kv_malformed_total", "counter", "records", "sidecar",
        "Bytes in the place of a record that are none, by what is wrong; each counts as a miss.",
        {"tier": ("worker", *KV_TIERS), "reason": MALFORMED_REASONS},
    ),
    MetricSpec(
        "chiasm_kv_namespace_bytes", "gauge", "bytes", "sidecar",
        "What a tier of this pod holds, by the state of its namespaces; 0 for Valkey, which has "
        "its own count.",
        {"tier": KV_TIERS, "state": ("live", "draining", "retired", "swept")},
    ),
    MetricSpec(
        "chiasm_kv_tier_bytes", "gauge", "bytes", "sidecar",
        "What a tier of this pod holds, by what it is and by the modality of the media that any of "
        "a block's tokens stand for; 0 for what others hold.",
        {"tier": KV_TIERS, "kind": BLOCK_KINDS, "modality": BLOCK_MODALITIES},
    ),
    MetricSpec(
        "chiasm_kv_retired_list_loads_total", "counter", "loads", "sidecar",
        "Times that the list of retired namespaces was read because it had changed; refused: it "
        "could not be used, and what it named before stays retired.",
        {"outcome": ("taken", "refused")},
    ),
    MetricSpec(
        "chiasm_kv_engine_generation", "gauge", "generations", "sidecar",
        "The latest generation that the worker has named; it moves before every swap.",
    ),
    MetricSpec(
        "chiasm_kv_blocks_wanted_total", "counter", "blocks", "sidecar",
        "Blocks that the worker asked the tiers for.",
    ),
    MetricSpec(
        "chiasm_kv_blocks_found_total", "counter", "blocks", "sidecar",
        "Blocks of use found in a tier, by what they hold.",
        {"tier": KV_TIERS, "kind": BLOCK_KINDS},
    ),
    MetricSpec(
        "chiasm_kv_read_bytes_total", "counter", "bytes", "sidecar",
        "Records of use that were read from a tier.", {"tier": KV_TIERS},
    ),
    MetricSpec(
        "chiasm_kv_blocks_stored_total", "counter", "blocks", "sidecar",
        "Blocks that a tier has taken, from the worker or from a tier farther away.",
        {"tier": KV_TIERS, "kind": BLOCK_KINDS},
    ),
    MetricSpec(
        "chiasm_kv_written_bytes_total", "counter", "bytes", "sidecar",
        "Records that a tier has taken.", {"tier": KV_TIERS},
    ),
    MetricSpec(
        "chiasm_kv_writes_dropped_total", "counter", "records", "sidecar",
        "Records that did not get to a tier; busy: its queue or the tier is full, failed: the tier "
        "failed or is left alone.",
        {"tier": KV_TIERS, "reason": ("busy", "failed")},
    ),
    MetricSpec(
        "chiasm_kv_write_queue_bytes", "gauge", "bytes", "sidecar",
        "Records that wait to be written.", {"tier": KV_TIERS},
    ),
    MetricSpec(
        "chiasm_kv_tier_failures_total", "counter", "calls", "sidecar",
        "Calls of a tier that failed or took too long.", {"tier": KV_TIERS},
    ),
    MetricSpec(
        "chiasm_kv_breaker_open", "gauge", "boolean", "sidecar",
        "1 while a tier is left alone, because it failed or was slow several times in a row.",
        {"tier": KV_TIERS},
    ),
    MetricSpec(
        "chiasm_kv_peers", "gauge", "replicas", "sidecar",
        "Other replicas whose memory this one can read now.",
    ),
    MetricSpec(
        "chiasm_kv_peers_fenced", "gauge", "boolean", "sidecar",
        "1 when nobody without the secret reaches the memory that replicas read: with transport "
        "stream, and with nixl where the kernel drops what strangers send to its port; 0 when only "
        "a NetworkPolicy keeps them from it, and without peers.",
    ),
    MetricSpec(
        "chiasm_kv_peer_failures_total", "counter", "calls", "sidecar",
        "Look-ups and reads at one other replica that failed or took too long.",
    ),
    MetricSpec(
        "chiasm_kv_overtaken_reads_total", "counter", "records", "sidecar",
        "Slots of other replicas that were emptied or used again between look-up and read; what "
        "was read is nothing.",
    ),
    MetricSpec(
        "chiasm_kv_peers_refused_total", "counter", "connections", "sidecar",
        "Connections to the port for replicas that were not served; denied: without the secret, "
        "silent: without a question, slow: without taking the answer, busy: too many.",
        {"reason": PEER_REFUSALS},
    ),
    MetricSpec(
        "chiasm_kv_connections_refused_total", "counter", "connections", "sidecar",
        "Connections of a worker that were not served; not_admitted: its pod is not ready yet.",
        {
            "reason": (
                "not_admitted", "incarnation", "identity", "generation", "version", "staging",
            )
        },
    ),
)  # fmt: skip
METRIC_SPECS = (
    SIDECAR_SPECS
    + CONFIGURATION_SPECS
    + TRAFFIC_SPECS
    + TRACING_SPECS
    + WORKER_SPECS
    + OPERATOR_SPECS
)


def specs_of(part: Part) -> tuple[MetricSpec, ...]:
    """The rows that `part` exposes, in order."""
    return tuple(spec for spec in METRIC_SPECS if spec.part == part)


def markdown() -> str:
    """The reference page of every metric."""
    lines = [
        "# Metrics",
        "",
        "Written by `make generate` from `contract/chiasm_contract/metric_specs.py`. Those of "
        "worker and sidecar leave a pod through the sidecar's port 9100, path /metrics, those of "
        "the operator through its port 8080.",
        "",
        "| Metric | Kind | Unit | Labels | From | Meaning |",
        "|---|---|---|---|---|---|",
    ]
    for spec in METRIC_SPECS:
        labels = "; ".join(
            f"{name}: {', '.join(values)}" if values else name
            for name, values in spec.labels.items()
        )
        lines.append(
            f"| {spec.name} | {spec.kind} | {spec.unit} | {labels} | {spec.part} | {spec.help} |"
        )
    return "\n".join([*lines, *cardinality_lines(METRIC_SPECS)]) + "\n"
