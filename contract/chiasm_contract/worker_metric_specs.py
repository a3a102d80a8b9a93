"""The worker's rows of metric_specs.py."""

from __future__ import annotations

from chiasm_contract.block_guard import REJECT_FIELDS
from chiasm_contract.config import COMPRESSION_RATIOS
from chiasm_contract.metric_spec import (
    BLOCK_KINDS,
    BLOCK_MODALITIES,
    KNOWN_MODALITIES,
    KV_OUTCOMES,
    MODEL,
    PER_PROCESS,
    MetricSpec,
)

WORKER_SPECS: tuple[MetricSpec, ...] = (
    # requests and tokens
    MetricSpec(
        "vllm:num_requests_running", "gauge", "requests", "worker",
        "Requests that hold cache blocks.", MODEL,
    ),
    MetricSpec(
        "vllm:num_requests_waiting", "gauge", "requests", "worker",
        "Requests that wait for their first blocks, or for new ones after a preemption.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_requests_waiting", "gauge", "requests", "worker",
        "The same as vllm:num_requests_waiting by what the request brought.",
        {**MODEL, "modality": KNOWN_MODALITIES},
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
        "chiasm_worker_uncompressed_image_tokens_total", "counter", "tokens", "worker",
        "What the pictures in chiasm_worker_image_tokens_total would take without compression.",
        MODEL,
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
    # the cache
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
        "chiasm_worker_encode_calls_saved_total", "counter", "pictures", "worker",
        "Pictures that a prompt brought and the encoder did not compute; encoder_cache: its output "
        "was still there or came from a tier, prefix_cache: so were keys and values of all its "
        "tokens.",
        {**MODEL, "by": ("encoder_cache", "prefix_cache")},
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
        "chiasm_worker_findable_bytes", "gauge", "bytes", "worker",
        "Whole records of the blocks in chiasm_worker_findable_blocks, also by the modality of the "
        "media that any of a block's tokens stand for; mixed: media of several.",
        {**MODEL, "kind": BLOCK_KINDS, "modality": BLOCK_MODALITIES},
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
    # blocks from and for the memory tiers
    MetricSpec(
        "chiasm_worker_tier_connected", "gauge", "boolean", "worker",
        "1 while the block service has welcomed this worker; 0: own memory only.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_engine_generation", "gauge", "generations", "worker",
        "Rises before weights or processor are swapped; nothing from before is used after.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_tier_fetches_total", "counter", "requests", "worker",
        "Requests that could use blocks of the tiers, by whether these answered in time.",
        {**MODEL, "outcome": ("answered", "timeout", "unavailable")},
    ),
    MetricSpec(
        "chiasm_worker_tier_restored_tokens_total", "counter", "tokens", "worker",
        "Tokens whose content came from the tiers instead of being computed, by what it is.",
        {**MODEL, "kind": BLOCK_KINDS},
    ),
    MetricSpec(
        "chiasm_worker_tier_offered_blocks_total", "counter", "blocks", "worker",
        "Blocks written for the tiers to keep, by what they hold.",
        {**MODEL, "kind": BLOCK_KINDS},
    ),
    MetricSpec(
        "chiasm_worker_tier_skipped_blocks_total", "counter", "blocks", "worker",
        "Blocks worth keeping for which no slot was free as long as their request ran.", MODEL,
    ),
    MetricSpec(
        "chiasm_worker_tier_verdicts_total", "counter", "records", "worker",
        "How records were judged: by the sidecar when asked for (get_kv) or offered (update_kv), "
        "and by the worker before they could be found (commit).",
        {**MODEL, "op": ("get_kv", "commit", "update_kv"), "outcome": KV_OUTCOMES},
    ),
    MetricSpec(
        "chiasm_worker_tier_rejects_total", "counter", "records", "worker",
        "Records that the worker refused as those of something else, by the first field that "
        "differs; generation: asked for before the last swap.",
        {**MODEL, "field": REJECT_FIELDS},
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
