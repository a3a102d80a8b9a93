"""Inside the workers: steps, batches, encoder, pool."""

from __future__ import annotations

from chiasm_dashboards.board import (
    Board,
    Panel,
    Query,
    Row,
    per_second,
    pods,
    quantile,
    share,
    total,
)

_STEP = per_second("chiasm_worker_step_seconds_total", "pod")
_MODEL = per_second("chiasm_worker_model_seconds_total", "pod")
_ENCODER = per_second("chiasm_worker_encoder_seconds_total", "pod")
_STEPS = per_second("chiasm_worker_steps_total", "pod")
_ENCODED = per_second("chiasm_worker_encode_calls_total")

_WORK = Row(
    "Steps",
    (
        Panel(
            "Time of a second",
            "percentunit",
            "What a worker does with its time, on average: the model's text part, its encoder, and "
            "what is around them. What is missing to 1 is idle.",
            (
                Query(f"avg({_MODEL}) - avg({_ENCODER})", "text"),
                Query(f"avg({_ENCODER})", "encoder"),
                Query(f"avg({_STEP}) - avg({_MODEL})", "around"),
            ),
            kind="stacked",
        ),
        Panel(
            "Time of a step",
            "s",
            "Every running request waits so long for its next token.",
            (Query(share(_STEP, _STEPS), "{{pod}}"),),
        ),
        Panel(
            "Tokens in a step",
            "short",
            "Bounded by maxNumBatchedTokens.",
            (
                Query(
                    share(per_second("chiasm_worker_step_tokens_total", "pod"), _STEPS), "{{pod}}"
                ),
            ),
        ),
        Panel(
            "Requests running and waiting",
            "short",
            "Running ones hold blocks.",
            (
                Query(total("vllm:num_requests_running"), "running"),
                Query(total("vllm:num_requests_waiting"), "waiting"),
            ),
        ),
        Panel(
            "Requests that did not end well",
            "reqps",
            "Aborted: the client went away; failed: their batch could not be computed.",
            (
                Query(per_second("chiasm_worker_requests_aborted_total"), "aborted"),
                Query(per_second("chiasm_worker_requests_failed_total"), "failed"),
            ),
        ),
        Panel(
            "Lengths",
            "short",
            "Tokens of prompts, pictures included, and of answers: 95 of 100 are below.",
            (
                Query(quantile(0.95, "vllm:request_prompt_tokens"), "prompt"),
                Query(quantile(0.95, "vllm:request_generation_tokens"), "answer"),
            ),
        ),
    ),
)
_PICTURES = Row(
    "Pictures, videos, sounds",
    (
        Panel(
            "Encoder calls made and saved",
            "short",
            "Items a second. encoder_cache: the output was still there; prefix_cache: so were keys "
            "and values of all its tokens.",
            (
                Query(_ENCODED, "made"),
                Query(
                    per_second("chiasm_worker_encode_calls_saved_total", "by"), "saved by {{by}}"
                ),
            ),
            kind="stacked",
        ),
        Panel(
            "Items in an encoder call",
            "short",
            "New pictures of equal shape share one call.",
            (Query(share(_ENCODED, per_second("chiasm_worker_encoder_batches_total")), "items"),),
        ),
        Panel(
            "Padding",
            "percentunit",
            "Share of the encoder's rows that stand for no picture.",
            (
                Query(
                    share(
                        per_second("chiasm_worker_encoder_padding_rows_total"),
                        per_second("chiasm_worker_encoder_rows_total"),
                    ),
                    "padding",
                ),
            ),
        ),
        Panel(
            "Tokens of pictures",
            "short",
            "Per second by compression, and what the same pictures would take without any.",
            (
                Query(
                    per_second("chiasm_worker_image_tokens_total", "compression"),
                    "{{compression}}x",
                ),
                Query(per_second("chiasm_worker_uncompressed_image_tokens_total"), "uncompressed"),
            ),
        ),
        Panel(
            "Files",
            "short",
            "Admitted per second, by the format that their bytes really have.",
            tuple(
                Query(per_second(f"chiasm_sidecar_{kind}s_total", "format"), "{{format}}")
                for kind in ("image", "video", "audio")
            ),
        ),
        Panel(
            "Size of pictures and bodies",
            "bytes",
            "95 of 100 are below.",
            (
                Query(quantile(0.95, "chiasm_sidecar_image_bytes"), "picture"),
                Query(quantile(0.95, "chiasm_sidecar_request_body_bytes"), "body"),
            ),
        ),
    ),
)
_POOL = Row(
    "The pool",
    (
        Panel(
            "Blocks held by running requests",
            "percentunit",
            "At 1 requests take blocks from each other, which computes tokens again.",
            (Query(pods("vllm:kv_cache_usage_perc"), "{{pod}}"),),
        ),
        Panel(
            "Blocks by state",
            "short",
            "Cached ones are given up when room is needed.",
            (Query(total("chiasm_worker_blocks", "state"), "{{state}}"),),
            kind="stacked",
        ),
        Panel(
            "Preemptions and evictions",
            "short",
            "Per second: requests that lost their blocks, and cached blocks given up, by kind.",
            (
                Query(per_second("vllm:num_preemptions_total"), "preemptions"),
                Query(
                    per_second("chiasm_worker_block_evictions_total", "kind"), "evicted {{kind}}"
                ),
            ),
        ),
        Panel(
            "Found in the prefix cache",
            "percentunit",
            "Share of the tokens of admitted requests whose keys and values were there.",
            (
                Query(
                    share(
                        per_second("vllm:prefix_cache_hits_total"),
                        per_second("vllm:prefix_cache_queries_total"),
                    ),
                    "tokens",
                ),
            ),
        ),
        Panel(
            "Found in the encoder cache",
            "percentunit",
            "Share of the pictures whose encoder output a prompt needed and that was there.",
            (
                Query(
                    share(
                        per_second("vllm:mm_cache_hits_total"),
                        per_second("vllm:mm_cache_queries_total"),
                    ),
                    "pictures",
                ),
            ),
        ),
        Panel(
            "Cost of computing again",
            "s",
            "Per token, measured while running; what is dear stays longer in every tier.",
            (
                Query(
                    f"avg by (modality) ({pods('chiasm_worker_rebuild_seconds_per_token')})",
                    "{{modality}}",
                ),
            ),
        ),
        Panel(
            "Pool's set-up",
            "short",
            "Always 1; the legend says how the pool is set up.",
            (
                Query(
                    pods("vllm:cache_config_info"),
                    "{{num_gpu_blocks}} blocks of {{block_size}} tokens",
                ),
            ),
            kind="number",
        ),
    ),
)

BOARD = Board(
    "engine",
    "Chiasm: engine",
    "What the workers' time, tokens and blocks go into.",
    (_WORK, _PICTURES, _POOL),
)
