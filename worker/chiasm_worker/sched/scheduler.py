"""One step at a time: budgets and a block pool -> a ScheduledBatch of plain data.

Each request has tokens whose K and V are missing, and a step computes some of them. Every decoding
request gets its token first; what is left of the token budget goes to the prompts of running
requests, then waiting ones are admitted, each starting behind the longest prefix that the cache
holds: all in the order of policy.py. Pictures are encoded in the step whose chunk first touches
them, as many as the encoder's budget allows; a chunk ends before the picture that has to wait.

When blocks run out the request that is served last is preempted: it gives its blocks back and
later recomputes from its tokens, which mostly hits the cache. Cutting a chunk inside a picture is
fine for causal attention; every chunk reads the picture's one encoder output. Where tokens
see one another it is not: spans.py says where chunks and prefix hits end then.

Must not know: torch, text, HTTP. Invariants: a request's table covers its computed tokens; a
media handle is held exactly while a coming chunk still needs it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from chiasm_contract.errors import InvariantError

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache, MediaHandle
from chiasm_worker.kvcache.prefix_cache import ContentChain, find_prefix
from chiasm_worker.request import FinishReason, Prompt, Request, RequestStatus
from chiasm_worker.sched.batch import Chunk, EncodeJob, ScheduledBatch
from chiasm_worker.sched.budget import StepBudget
from chiasm_worker.sched.policy import RankedQueue, rank, rank_beside
from chiasm_worker.sched.refusal import Refusal
from chiasm_worker.sched.spans import chunk_end, needed_together, whole_prefix_blocks


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The budgets of one step and of one request."""

    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool = True
    max_num_encoder_tokens: int = 2**62


class Placed(enum.Enum):
    """Whether a chunk could be scheduled, and if not, what is missing."""

    YES = "yes"
    NO_ROOM = "no room"
    NEXT_STEP = "the encoder's budget"


@dataclass(slots=True)
class SchedulerCounters:
    """Totals since start."""

    num_preemptions: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    media_queries: int = 0
    media_hits: int = 0
    media_in_prefix: int = 0  # whose tokens were all found in the prefix cache


class Scheduler:
    """Owns the queues and every block of every request."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, media_cache: MediaCache) -> None:
        self._limits = limits
        self._pool = pool
        self._media_cache = media_cache
        self._waiting = RankedQueue()
        self._running = RankedQueue()
        self._num_arrived = 0
        self._last_turn = 0
        self._refusal: Refusal | None = None
        self.counters = SchedulerCounters()

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that hold none yet, or none any more."""
        return len(self._waiting)

    def waiting_modalities(self) -> Counter[str]:
        """How many requests wait, by what they brought; any thread may ask."""
        # At once: another thread may be moving them.
        return Counter(request.prompt.modality for request in list(self._waiting))

    @property
    def requests(self) -> tuple[Request, ...]:
        """All that are known, running ones first."""
        return (*self._running, *self._waiting)

    @property
    def has_requests(self) -> bool:
        """Whether a step would do anything."""
        return self.num_running + self.num_waiting > 0

    def fits(self, request: Request) -> bool:
        """Whether the request could run to its end if it were alone."""
        num_tokens = request.num_prompt_tokens + request.params.max_tokens
        return num_tokens <= self.max_blocks(request.prompt) * request.table.block_size

    def max_blocks(self, prompt: Prompt) -> int:
        """Blocks that the tokens of a request with this prompt could have, if it were alone."""
        # One output for an item in all its details.
        items = [span.item.encoded for span in prompt.media]
        sizes = {item: self._media_cache.num_blocks(item) for item in items}
        needs = [(span.needed_from, span.needed_until) for span in prompt.media]
        largest = max(
            (
                sum(sizes[item] for item in {items[i] for i in together})
                for together in needed_together(needs, prompt.bidirectional)
            ),
            default=0,
        )
        return self._pool.num_blocks - largest

    def add(self, request: Request, beside: Request | None = None) -> None:
        """Queue a request for which `fits` holds.

        Args:
            request: the one to queue.
            beside: a request whose place in every queue this one shares, right behind it.
        """
        if beside is None:
            request.rank = rank(self._num_arrived, request.priority)
        else:
            request.rank = rank_beside(beside.rank, self._num_arrived)
        self._num_arrived += 1
        self._waiting.add(request)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request, whatever state it is in, and give its blocks back."""
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
        elif request.status is RequestStatus.WAITING:
            self._waiting.remove(request)
        self._give_back(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason

    def schedule(self) -> ScheduledBatch:
        """Choose this step's work; call `update` with its tokens before the next.

        All of it is for one model. While requests that began before a swap still run beside later
        ones, each model has every other step.
        """
        for engine_gen in self._turns():
            batch = self._schedule(engine_gen)
            if batch.chunks:
                self._last_turn = engine_gen
                return batch
        if self.has_requests:
            raise InvariantError(
                f"Nothing was scheduled for {self.num_running} running and {self.num_waiting} "
                f"waiting requests with {self._pool.num_allocatable} blocks to hand out; bug."
            )
        return ScheduledBatch()

    def _turns(self) -> list[int]:
        """The generations that have requests, beginning behind the one that was served last."""
        have = {request.scope.engine_gen for request in (*self._running, *self._waiting)}
        return sorted(have, key=lambda engine_gen: (engine_gen <= self._last_turn, engine_gen))

    def _schedule(self, engine_gen: int) -> ScheduledBatch:
        batch = ScheduledBatch()
        budget = StepBudget(
            self._limits.max_num_batched_tokens, self._limits.max_num_encoder_tokens
        )
        preempted = self.counters.num_preemptions
        running = [r for r in self._running if r.scope.engine_gen == engine_gen]
        for request in (
            *(request for request in running if request.is_decoding),
            *(request for request in running if not request.is_decoding),
        ):
            if budget.tokens > 0 and request.status is RequestStatus.RUNNING:
                self._place_or_preempt(request, budget, batch)
        if self.counters.num_preemptions == preempted:
            self._admit(budget, batch, engine_gen)
        return batch

    def update(self, batch: ScheduledBatch, tokens: Mapping[str, int]) -> None:
        """Record that `batch` was computed and append the sampled `tokens` (by request id)."""
        for chunk in batch.chunks:
            request = chunk.request
            request.num_computed_tokens = chunk.end
            self._commit_full_blocks(request)
            media = request.prompt.media
            for index in [i for i in request.media if media[i].needed_until <= chunk.end]:
                self._media_cache.release(request.media.pop(index))
            if chunk.samples:
                request.token_ids.append(tokens[request.request_id])

    def abandon(self, batch: ScheduledBatch) -> None:
        """Undo the promises of a step that failed, so that its requests may be scheduled again.

        Outputs never written must not be found, and whoever holds one starts over. What else the
        step would have changed is unchanged: tokens that were not computed are still missing.
        """
        lost = {block_id for job in batch.encodes for block_id in job.handle.block_ids}
        for job in batch.encodes:
            self._media_cache.forget(job.handle)
        for request in list(self._running):
            if any(not lost.isdisjoint(handle.block_ids) for handle in request.media.values()):
                self._preempt(request)

    def check(self) -> None:
        """Raise InvariantError unless every hold on a block is that of one request's books.

        A block may be in several tables only by reference: it has as many readers as holders.
        """
        self._pool.check()
        holders: Counter[int] = Counter()
        for request in (*self._running, *self._waiting):
            holders.update(request.table.block_ids)
            for handle in request.media.values():
                self._media_cache.check(handle)
                holders.update(handle.block_ids)
        for block_id in range(self._pool.num_blocks):
            if self._pool.ref_cnt(block_id) != holders[block_id]:
                raise InvariantError(
                    f"Block {block_id} has {self._pool.ref_cnt(block_id)} readers but "
                    f"{holders[block_id]} requests hold it; bug."
                )

    def _place_or_preempt(
        self, request: Request, budget: StepBudget, batch: ScheduledBatch
    ) -> None:
        """Schedule a running request's next chunk; those served later make room for it."""
        while self._place(request, budget, batch) is Placed.NO_ROOM:
            victim = self._running.last()
            if chunk := batch.take_out(victim):
                budget.tokens += chunk.num_tokens
            self._preempt(victim)
            if victim is request:
                return

    def _admit(self, budget: StepBudget, batch: ScheduledBatch, engine_gen: int) -> None:
        while budget.tokens > 0 and len(self._running) < self._limits.max_num_seqs:
            request = self._waiting.peek(engine_gen)
            if request is None:
                return
            if self._refusal is not None and self._refusal.still_holds(request, self._pool):
                return
            hits = self._attach_prefix(request)
            placed = self._place(request, budget, batch)
            if placed is not Placed.YES:
                self._give_back(request, was_used=False)
                if placed is Placed.NO_ROOM:
                    caching = self._limits.prefix_caching
                    self._refusal = Refusal.of(request, self._pool, prefix_caching=caching)
                return
            self.counters.prefix_hit_tokens += hits
            self.counters.prefix_query_tokens += len(request.token_ids)
            if request.num_cached_tokens is None:
                request.num_cached_tokens = hits
                self.counters.media_in_prefix += request.num_media_behind(hits)
            self._waiting.remove(request)
            request.status = RequestStatus.RUNNING
            self._running.add(request)

    def find_prefix(
        self, chain: ContentChain, prompt: Prompt, token_ids: Sequence[int]
    ) -> list[int]:
        """The cached blocks that a request with these tokens could start behind."""
        if not self._limits.prefix_caching:
            return []
        block_ids = find_prefix(self._pool, chain, token_ids)
        spans = prompt.bidirectional
        return block_ids[: whole_prefix_blocks(len(block_ids), chain.block_size, spans)]

    def _attach_prefix(self, request: Request) -> int:
        block_ids = self.find_prefix(request.chain, request.prompt, request.token_ids)
        size = request.table.block_size
        self._pool.acquire(block_ids)
        request.table.block_ids = block_ids
        request.table.num_committed = len(block_ids)
        request.num_computed_tokens = len(block_ids) * size
        return request.num_computed_tokens

    def _place(self, request: Request, budget: StepBudget, batch: ScheduledBatch) -> Placed:
        """Schedule the request's next chunk, as long as budgets and blocks allow.

        A chunk that does not fit is cut before the last picture that begins in it, so that in the
        end no more encoder outputs are needed at a time than must be: `fits` counts on that. What
        then still exceeds the encoder's budget has a step's encoding to itself.
        """
        budget.is_waived = False
        start, spans = request.num_computed_tokens, request.prompt.bidirectional
        end = chunk_end(start, min(len(request.token_ids), start + budget.tokens), spans)
        while (placed := self._hold(request, start, end, budget, batch)) is not Placed.YES:
            begins = [request.prompt.media[i].needed_from for i in request.media_in(start, end)]
            shorter = chunk_end(start, max(begins), spans) if begins else start
            if start < shorter < end:
                end = shorter
            elif placed is Placed.NEXT_STEP and not (budget.has_encodes or budget.is_waived):
                budget.is_waived = True
            else:
                return placed
        batch.chunks.append(
            Chunk(request, start, end - start, samples=end == len(request.token_ids))
        )
        budget.tokens -= end - start
        return Placed.YES

    def _hold(
        self, request: Request, start: int, end: int, budget: StepBudget, batch: ScheduledBatch
    ) -> Placed:
        """Take the blocks and encoder outputs of tokens start..end-1, or none of them."""
        held: dict[int, MediaHandle] = {}
        step = replace(budget)
        placed = Placed.YES
        for index in request.media_in(start, end):
            if index not in request.media:
                placed = self._hold_media(request, index, step, held)
                if placed is not Placed.YES:
                    break
        blocks: list[int] | None = None
        if placed is Placed.YES:
            blocks = self._pool.allocate(request.table.num_missing(end))
        if blocks is None:
            for handle in reversed(held.values()):
                self._media_cache.take_back(handle)
            return Placed.NO_ROOM if placed is Placed.YES else placed
        budget.encoder_tokens, budget.has_encodes = step.encoder_tokens, step.has_encodes
        request.table.block_ids += blocks
        request.media.update(held)
        batch.encodes += [EncodeJob(request, i, h) for i, h in held.items() if h.is_new]
        self.counters.media_queries += len(held)
        self.counters.media_hits += sum(not handle.is_new for handle in held.values())
        return Placed.YES

    def _hold_media(
        self, request: Request, index: int, step: StepBudget, held: dict[int, MediaHandle]
    ) -> Placed:
        """Add one item's encoder output to `held`, unless it has to wait."""
        item, root = request.prompt.media[index].item, request.scope.root
        is_new = not self._media_cache.contains(root, item)
        if is_new and not step.may_encode(item.num_encoder_tokens):
            return Placed.NEXT_STEP
        handle = self._media_cache.acquire(root, item)
        if handle is None:
            return Placed.NO_ROOM
        if is_new:
            step.spend_encode(item.num_encoder_tokens)
        held[index] = handle
        return Placed.YES

    def _preempt(self, request: Request) -> None:
        self._running.remove(request)
        self._give_back(request)
        request.status = RequestStatus.WAITING
        request.num_preemptions += 1
        self.counters.num_preemptions += 1
        self._waiting.add(request)

    def _give_back(self, request: Request, *, was_used: bool = True) -> None:
        for index in list(request.media):
            self._media_cache.release(request.media.pop(index))
        self._pool.release(request.table.take_all(), was_used=was_used)
        request.num_computed_tokens = 0

    def _commit_full_blocks(self, request: Request) -> None:
        if not self._limits.prefix_caching:
            return
        table = request.table
        while (table.num_committed + 1) * table.block_size <= request.num_computed_tokens:
            index = table.num_committed
            content = request.chain.content(index, request.token_ids)
            own = table.block_ids[index]
            parent_key = content.parent_key if index else None
            found = self._pool.commit(own, content.key, content, content.rebuild, parent_key)
            if found != own:
                # Another request computed the same at the same time: one block is enough.
                self._pool.acquire([found])
                self._pool.release([own])
                table.block_ids[index] = found
            table.num_committed += 1
