"""Where keys and values lie, what moves between tiers, and what the guard lets through."""

from __future__ import annotations

from chiasm_dashboards.board import (
    Board,
    Panel,
    Query,
    Row,
    per_second,
    pods,
    quantile,
    total,
)

_CHECKS = "chiasm_kv_version_check_total"
_VERDICTS = "chiasm_worker_tier_verdicts_total"

_HELD = Row(
    "What is held",
    (
        Panel(
            "Bytes in the workers' pools",
            "bytes",
            "Blocks that another request could use, by what they hold.",
            (Query(total("chiasm_worker_findable_bytes", "kind"), "{{kind}}"),),
            kind="stacked",
        ),
        Panel(
            "Bytes in the tiers",
            "bytes",
            "By tier and by what it is; Valkey has its own count.",
            (Query(total("chiasm_kv_tier_bytes", "tier, kind"), "{{tier}} {{kind}}"),),
            kind="stacked",
        ),
        Panel(
            "Bytes by modality",
            "bytes",
            "In the workers' pools and in the tiers. A block is of the modality of the media that "
            "any of its tokens stand for, whole; mixed: of several; text: of none.",
            (
                Query(total("chiasm_worker_findable_bytes", "modality"), "pool {{modality}}"),
                Query(total("chiasm_kv_tier_bytes", "tier, modality"), "{{tier}} {{modality}}"),
            ),
            kind="stacked",
        ),
        Panel(
            "Bytes by state of their namespace",
            "bytes",
            "draining ones go first; of retired ones nothing is served any more.",
            (Query(total("chiasm_kv_namespace_bytes", "state"), "{{state}}"),),
            kind="stacked",
        ),
        Panel(
            "Blocks another request could use",
            "short",
            "In the workers' pools, by what they hold.",
            (Query(total("chiasm_worker_findable_blocks", "kind"), "{{kind}}"),),
            kind="stacked",
        ),
        Panel(
            "Connected to the tiers",
            "short",
            "1 while a worker and its sidecar's block service work together.",
            (Query(pods("chiasm_worker_tier_connected"), "{{pod}}"),),
        ),
        Panel(
            "Generation of the engine",
            "short",
            "Rises before weights or processor are swapped, in the worker and then in its sidecar.",
            (
                Query(pods("chiasm_worker_engine_generation"), "worker {{pod}}"),
                Query(pods("chiasm_kv_engine_generation"), "sidecar {{pod}}"),
            ),
        ),
    ),
)
_MOVED = Row(
    "What moves",
    (
        Panel(
            "Found of what was wanted",
            "percentunit",
            "Share of the blocks that workers asked the tiers for.",
            (
                Query(
                    f"{per_second('chiasm_kv_blocks_found_total', 'tier')} / on () group_left () "
                    f"({per_second('chiasm_kv_blocks_wanted_total')} > 0)",
                    "{{tier}}",
                ),
            ),
        ),
        Panel(
            "Blocks found and stored",
            "short",
            "Per second by tier and by what they hold.",
            (
                Query(
                    per_second("chiasm_kv_blocks_found_total", "tier, kind"),
                    "found {{tier}} {{kind}}",
                ),
                Query(
                    per_second("chiasm_kv_blocks_stored_total", "tier, kind"),
                    "stored {{tier}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Read and written",
            "Bps",
            "By tier.",
            (
                Query(per_second("chiasm_kv_read_bytes_total", "tier"), "read {{tier}}"),
                Query(per_second("chiasm_kv_written_bytes_total", "tier"), "written {{tier}}"),
            ),
        ),
        Panel(
            "Tokens not computed",
            "short",
            "Per second: their content came from the tiers, by what it is.",
            (Query(per_second("chiasm_worker_tier_restored_tokens_total", "kind"), "{{kind}}"),),
            kind="stacked",
        ),
        Panel(
            "Answers of the tiers in time",
            "reqps",
            "Requests that could use blocks of the tiers.",
            (Query(per_second("chiasm_worker_tier_fetches_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Offered and left out",
            "short",
            "Blocks a second that workers wrote for the tiers, and those without a free slot.",
            (
                Query(per_second("chiasm_worker_tier_offered_blocks_total", "kind"), "{{kind}}"),
                Query(per_second("chiasm_worker_tier_skipped_blocks_total"), "left out"),
            ),
        ),
        Panel(
            "Tiers in trouble",
            "short",
            "Failed calls a second, records that got lost on their way, and 1 while a tier is left "
            "alone.",
            (
                Query(per_second("chiasm_kv_tier_failures_total", "tier"), "failures {{tier}}"),
                Query(
                    per_second("chiasm_kv_writes_dropped_total", "tier, reason"),
                    "dropped {{tier}} {{reason}}",
                ),
                Query(total("chiasm_kv_breaker_open", "tier"), "left alone {{tier}}"),
            ),
        ),
        Panel(
            "Waiting to be written",
            "bytes",
            "By tier.",
            (Query(total("chiasm_kv_write_queue_bytes", "tier"), "{{tier}}"),),
        ),
        Panel(
            "Other replicas",
            "short",
            "Whose memory can be read, and what went wrong with them per second.",
            (
                Query(pods("chiasm_kv_peers"), "reached by {{pod}}"),
                Query(pods("chiasm_kv_peers_fenced"), "{{pod}} fenced"),
                Query(per_second("chiasm_kv_peer_failures_total"), "failures"),
                Query(per_second("chiasm_kv_overtaken_reads_total"), "overtaken reads"),
                Query(per_second("chiasm_kv_peers_refused_total", "reason"), "refused {{reason}}"),
            ),
        ),
    ),
)
_GUARDED = Row(
    "What the guard says",
    (
        Panel(
            "Verdicts of the sidecar",
            "short",
            "Records a second; use is what went on. Whatever else it says is computed again.",
            (Query(per_second(_CHECKS, "op, outcome"), "{{op}} {{outcome}}"),),
        ),
        Panel(
            "Verdicts of the worker",
            "short",
            "Before records become findable (commit), and what it heard of those that it asked for "
            "and offered.",
            (Query(per_second(_VERDICTS, "op, outcome"), "{{op}} {{outcome}}"),),
        ),
        Panel(
            "Rejected by field",
            "short",
            "Records of something else than was asked for. generation is usual after a swap, any "
            "other an alert.",
            (
                Query(per_second("chiasm_kv_version_reject_total", "field"), "sidecar {{field}}"),
                Query(per_second("chiasm_worker_tier_rejects_total", "field"), "worker {{field}}"),
            ),
        ),
        Panel(
            "Damaged",
            "short",
            "Bytes a second taken out of tiers, torn reads, and bytes that are no record.",
            (
                Query(per_second("chiasm_kv_quarantined_bytes_total"), "quarantined bytes"),
                Query(per_second("chiasm_kv_torn_read_total"), "torn reads"),
                Query(per_second("chiasm_kv_malformed_total", "reason"), "malformed {{reason}}"),
            ),
        ),
        Panel(
            "Time of a check",
            "s",
            "Of one batch of records, checksums of payloads excluded.",
            (
                Query(quantile(0.5, "chiasm_kv_check_seconds"), "half"),
                Query(quantile(0.99, "chiasm_kv_check_seconds"), "99 of 100"),
            ),
        ),
        Panel(
            "Who is let in",
            "short",
            "Identity checks and probe pictures a second, connections that were refused, and lists "
            "of retired namespaces that were read.",
            (
                Query(
                    per_second("chiasm_sidecar_identity_checks_total", "outcome"),
                    "identity {{outcome}}",
                ),
                Query(
                    per_second("chiasm_sidecar_probe_pictures_total", "outcome"),
                    "picture {{outcome}}",
                ),
                Query(
                    per_second("chiasm_kv_connections_refused_total", "reason"),
                    "connection {{reason}}",
                ),
                Query(
                    per_second("chiasm_kv_retired_list_loads_total", "outcome"),
                    "retired list {{outcome}}",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    "kv_and_guard",
    "Chiasm: KV and guard",
    "Where keys and values lie, what moves between tiers, and what the guard lets through.",
    (_HELD, _MOVED, _GUARDED),
)
