"""What the engine notes on the timeline, from what it has at hand.

Must not know: how notes are kept, how anything is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from chiasm_contract.block_guard import Outcome
from chiasm_contract.block_wire import Fetch, Tier
from chiasm_contract.timeline import Detail, Row, Step

from chiasm_worker.engine.encoding import Encoding
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.request import FinishReason, Request
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.sched.scheduler import Scheduler
from chiasm_worker.tiers.link import Fetched


class PhaseTimes(NamedTuple):
    """When a step began, and when each of its phases ended."""

    start: float
    scheduled: float
    encoded: float
    computed: float
    sampled: float
    end: float


def step_of(
    number: int,
    batch: ScheduledBatch,
    times: PhaseTimes,
    encoding: Encoding,
    scheduler: Scheduler,
    pool: BlockPool,
) -> Step:
    """A step that has ended."""
    rows = tuple(
        [Row(c.request.request_id, c.start, c.num_tokens, c.samples) for c in batch.chunks]
    )
    load = (scheduler.num_running, scheduler.num_waiting, pool.num_used)
    return Step(number, *times, rows, tuple(encoding.calls), *load)


def queued(request: Request, num_choices: int) -> Mapping[str, Detail]:
    """What a request brings to the queue."""
    media: Counter[str] = Counter(span.item.modality for span in request.prompt.media)
    return {
        "prompt_tokens": request.num_prompt_tokens,
        "choices": num_choices,
        **{f"{modality}_items": count for modality, count in media.items()},
    }


def ended(request: Request, reason: FinishReason) -> Mapping[str, Detail]:
    """How a choice ended."""
    return {
        "reason": reason.value,
        "choice": request.choice,
        "output_tokens": request.num_output_tokens,
        "cached_tokens": request.num_cached_tokens or 0,
        "preemptions": request.num_preemptions,
    }


def found_where(fetch: Fetch, fetched: Fetched | None) -> Mapping[str, Detail]:
    """How many blocks were asked for, and where those of use were; none when no answer came."""
    asked: dict[str, Detail] = {"blocks": sum(len(group.keys) for group in fetch.groups)}
    if fetched is None:
        return {**asked, "outcome": "none in time"}
    found = Counter(
        Tier(each.tier).name.lower()
        for each in fetched.found.values()
        if each.verdict.outcome is Outcome.USE
    )
    return {**asked, "outcome": "answered", **{f"{tier}_blocks": n for tier, n in found.items()}}
