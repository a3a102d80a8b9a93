"""The one list of metrics: dashboards, alert rules and docs may name nothing else.

vLLM's names where the meaning is the same, ours under `chiasm_`. A counter's name ends in
`_total`, the way it is exposed. Label values are closed sets, or one value for a process's life
(`model_name`): nothing that a client sends becomes a label.

Must not know: the library that counts. Each part builds its instruments from its own rows, and a
test in each part compares what it exposes with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from chiasm_contract.config import COMPRESSION_RATIOS
from chiasm_contract.media_formats import AudioFormat, VideoFormat

Kind = Literal["counter", "gauge", "histogram"]
Part = Literal["sidecar", "worker", "operator"]

PER_PROCESS: tuple[str, ...] = ()
"""The values of a label that has one value as long as a process lives."""

MODEL: Mapping[str, tuple[str, ...]] = {"model_name": PER_PROCESS}

STATUS_CODES = ("200", "400", "401", "404", "413", "429", "499", "500", "503")
MODALITIES = ("text", "image", "video", "audio", "mixed", "unknown")
BLOCK_KINDS = ("text_kv", "media_kv", "cross_kv", "encoder_output")
IMAGE_FORMATS = ("png", "jpeg", "webp", "gif", "bmp")
VIDEO_FORMATS = get_args(VideoFormat)
AUDIO_FORMATS = get_args(AudioFormat)

SECONDS_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
TOKEN_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000)
BYTES_BUCKETS = tuple(1024 * 4**power for power in range(9))


@dataclass(frozen=True)
class MetricSpec:
    """One family: everything that a reader of a panel or an alert needs to know about it."""

    name: str
    kind: Kind
    unit: str
    part: Part
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()

    @property
    def sample_names(self) -> tuple[str, ...]:
        """The names of its time series in an exposition."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "count", "sum"))
        return (self.name,)


METRIC_SPECS: tuple[MetricSpec, ...] = (
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
        "Chat requests by status code and by what they brought; 499: the client went away.",
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
    # worker: requests and tokens
    MetricSpec(
        "vllm:num_requests_running", "gauge", "requests", "worker",
        "Requests that hold cache blocks.", MODEL,
    ),
    MetricSpec(
        "vllm:num_requests_waiting", "gauge", "requests", "worker",
        "Requests that wait for their first blocks, or for new ones after a preemption.", MODEL,
    ),
    MetricSpec(
        "vllm:prompt_tokens_total", "counter", "tokens", "worker",
        "Prompt tokens, pictures included, of requests that reached their first token.", MODEL,
    ),
    MetricSpec(
        "vllm:generation_tokens_total", "counter", "tokens", "worker",
        "Tokens generated.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_image_tokens_total", "counter", "tokens", "worker",
        "Tokens of pictures in prompts that reached their first token, by compression.",
        {**MODEL, "compression": tuple(map(str, COMPRESSION_RATIOS))},
    ),
    MetricSpec(
        "vllm:num_preemptions_total", "counter", "preemptions", "worker",
        "Times that a running request gave its blocks to an older one.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_steps_total", "counter", "steps", "worker",
        "Batches computed.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_step_tokens_total", "counter", "tokens", "worker",
        "Tokens computed in batches: prompt, generated, and computed again after a preemption.",
        MODEL,
    ),
    MetricSpec(
        "chiasm_worker_step_seconds_total", "counter", "seconds", "worker",
        "Time spent on batches, from choosing them to their text.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_model_seconds_total", "counter", "seconds", "worker",
        "The part of chiasm_worker_step_seconds_total that the model itself took.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_requests_aborted_total", "counter", "requests", "worker",
        "Requests whose client went away before their end.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_requests_failed_total", "counter", "requests", "worker",
        "Requests whose batch could not be computed.", MODEL,
    ),
    # worker: the cache
    MetricSpec(
        "vllm:kv_cache_usage_perc", "gauge", "ratio", "worker",
        "Share of cache blocks that running requests hold; 1 is all.", MODEL,
    ),
    MetricSpec(
        "vllm:prefix_cache_queries_total", "counter", "tokens", "worker",
        "Tokens of admitted requests that were looked up in the prefix cache.", MODEL,
    ),
    MetricSpec(
        "vllm:prefix_cache_hits_total", "counter", "tokens", "worker",
        "Tokens of admitted requests that were found in the prefix cache.", MODEL,
    ),
    MetricSpec(
        "vllm:mm_cache_queries_total", "counter", "pictures", "worker",
        "Pictures whose encoder output a prompt needed.", MODEL,
    ),
    MetricSpec(
        "vllm:mm_cache_hits_total", "counter", "pictures", "worker",
        "Pictures whose encoder output was still there when a prompt needed it.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_encode_calls_total", "counter", "pictures", "worker",
        "Pictures sent through the vision encoder.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_encoder_batches_total", "counter", "batches", "worker",
        "Calls of the vision encoder; new pictures of equal shape share one.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_encoder_seconds_total", "counter", "seconds", "worker",
        "The part of chiasm_worker_model_seconds_total that the vision encoder took.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_encoder_rows_total", "counter", "patches", "worker",
        "Patches or frames that the encoder computed, padding included.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_encoder_padding_rows_total", "counter", "patches", "worker",
        "The part of chiasm_worker_encoder_rows_total that stands for no picture.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_block_evictions_total", "counter", "blocks", "worker",
        "Cached blocks given up to make room, by what they held.", {**MODEL, "kind": BLOCK_KINDS},
    ),
    MetricSpec(
        "chiasm_worker_findable_blocks", "gauge", "blocks", "worker",
        "Blocks whose content another request could use, by what they hold.",
        {**MODEL, "kind": BLOCK_KINDS},
    ),
    MetricSpec(
        "chiasm_worker_rebuild_seconds_per_token", "gauge", "seconds", "worker",
        "Measured cost of having a token's content again, which eviction weighs: text is prefill, "
        "the others their encoder.",
        {**MODEL, "modality": ("text", "image", "video", "audio")},
    ),
    MetricSpec(
        "chiasm_worker_blocks", "gauge", "blocks", "worker",
        "Cache blocks by state: used by a request, cached for later ones, or free.",
        {**MODEL, "state": ("free", "cached", "used")},
    ),
    MetricSpec(
        "vllm:cache_config_info", "gauge", "info", "worker",
        "Always 1; the labels say how the cache is set up.",
        {
            **MODEL,
            "block_size": PER_PROCESS,
            "num_gpu_blocks": PER_PROCESS,
            "enable_prefix_caching": PER_PROCESS,
        },
    ),
)  # fmt: skip


def specs_of(part: Part) -> tuple[MetricSpec, ...]:
    """The rows that `part` exposes, in order."""
    return tuple(spec for spec in METRIC_SPECS if spec.part == part)


def markdown() -> str:
    """The reference page of every metric."""
    lines = [
        "# Metrics",
        "",
        "Written by `make generate` from `contract/chiasm_contract/metric_specs.py`. Those of "
        "worker and sidecar leave a pod through the sidecar's port 9100, path /metrics.",
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
    return "\n".join(lines) + "\n"
