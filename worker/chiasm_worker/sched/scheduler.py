"""One step at a time: a token budget and a block pool -> a ScheduledBatch of plain data.

There is no prefill or decode phase: each request has tokens whose K and V are missing, and a step
computes some of them. Running requests come first, in order of admission; then waiting ones are
admitted, each starting behind the longest prefix that the cache holds. When blocks run out the
request admitted last is preempted: it gives its blocks back and later recomputes from its tokens,
which mostly hits the cache. Cutting a chunk inside a picture is fine for causal attention; every
chunk reads the picture's one encoder output. Where tokens see one another it is not: spans.py says
where chunks and prefix hits end then.

Must not know: torch, text, HTTP. Invariants: a request's table covers its computed tokens; a
media handle is held exactly while a coming chunk still needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract.errors import InvariantError

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache, MediaHandle
from chiasm_worker.kvcache.prefix_cache import find_prefix
from chiasm_worker.request import FinishReason, Prompt, Request, RequestStatus
from chiasm_worker.sched.policy import WaitingQueue, choose_victim
from chiasm_worker.sched.spans import chunk_end, needed_together, whole_prefix_blocks


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The budgets of one step and of one request."""

    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens start..start+num_tokens-1 of a request, computed in this step."""

    request: Request
    start: int
    num_tokens: int
    # True when the chunk ends at the last known token: its logits choose the next one.
    samples: bool

    @property
    def end(self) -> int:
        """First token after the chunk."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """A media item whose encoder output must be written before this step's chunks read it."""

    request: Request
    span_index: int
    handle: MediaHandle


@dataclass(slots=True)
class ScheduledBatch:
    """One step."""

    chunks: list[Chunk] = field(default_factory=list)
    encodes: list[EncodeJob] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(slots=True)
class SchedulerCounters:
    """Totals since start."""

    num_preemptions: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    media_queries: int = 0
    media_hits: int = 0


class Scheduler:
    """Owns the queues and every block of every request."""

    def __init__(self, limits: SchedulerLimits, pool: BlockPool, media_cache: MediaCache) -> None:
        self._limits = limits
        self._pool = pool
        self._media_cache = media_cache
        self._waiting = WaitingQueue()
        self._running: list[Request] = []
        self.counters = SchedulerCounters()

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that hold none yet, or none any more."""
        return len(self._waiting)

    @property
    def has_requests(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._waiting)

    def fits(self, request: Request) -> bool:
        """Whether the request could run to its end if it were alone."""
        num_tokens = request.num_prompt_tokens + request.params.max_tokens
        return num_tokens <= self.max_blocks(request.prompt) * request.table.block_size

    def max_blocks(self, prompt: Prompt) -> int:
        """Blocks that the tokens of a request with this prompt could have, if it were alone."""
        sizes = {span.item: self._media_cache.num_blocks(span.item) for span in prompt.media}
        needs = [(span.needed_from, span.needed_until) for span in prompt.media]
        largest = max(
            (
                sum(sizes[item] for item in {prompt.media[i].item for i in together})
                for together in needed_together(needs, prompt.bidirectional)
            ),
            default=0,
        )
        return self._pool.num_blocks - largest

    def add(self, request: Request, beside: Request | None = None) -> None:
        """Queue a request for which `fits` holds.

        Args:
            request: the one to queue.
            beside: a request admitted before, whose place in the queue this one shares.
        """
        if beside is None:
            self._waiting.append(request)
        else:
            self._waiting.push_front(request)

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
        """Choose this step's work; call `update` with its tokens before the next."""
        batch = ScheduledBatch()
        budget = self._limits.max_num_batched_tokens
        preempted = self.counters.num_preemptions
        index = 0
        while index < len(self._running) and budget > 0:
            request = self._running[index]
            chunk = self._place_or_preempt(request, budget, batch)
            if chunk is None:
                break
            batch.chunks.append(chunk)
            budget -= chunk.num_tokens
            index += 1
        if self.counters.num_preemptions == preempted:
            self._admit(budget, batch)
        if self.has_requests and not batch.chunks:
            raise InvariantError(
                f"Nothing was scheduled for {self.num_running} running and {self.num_waiting} "
                f"waiting requests with {self._pool.num_allocatable} blocks to hand out; bug."
            )
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
        """Undo the promises of a step that failed: outputs never written must not be found."""
        for job in batch.encodes:
            held = job.request.media.pop(job.span_index, None)
            if held is not None:
                self._media_cache.take_back(held)

    def _place_or_preempt(
        self, request: Request, budget: int, batch: ScheduledBatch
    ) -> Chunk | None:
        while True:
            chunk = self._place(request, budget, batch)
            if chunk is not None:
                return chunk
            victim = choose_victim(self._running)
            self._preempt(victim)
            if victim is request:
                return None

    def _admit(self, budget: int, batch: ScheduledBatch) -> None:
        while budget > 0 and len(self._running) < self._limits.max_num_seqs:
            request = self._waiting.peek()
            if request is None:
                return
            hits = self._attach_prefix(request)
            chunk = self._place(request, budget, batch)
            if chunk is None:
                self._give_back(request)
                return
            self.counters.prefix_hit_tokens += hits
            self.counters.prefix_query_tokens += len(request.token_ids)
            if request.num_cached_tokens is None:
                request.num_cached_tokens = hits
            self._waiting.pop()
            request.status = RequestStatus.RUNNING
            self._running.append(request)
            batch.chunks.append(chunk)
            budget -= chunk.num_tokens

    def _attach_prefix(self, request: Request) -> int:
        if not self._limits.prefix_caching:
            return 0
        block_ids = find_prefix(self._pool, request.chain, request.token_ids)
        size, spans = request.table.block_size, request.prompt.bidirectional
        block_ids = block_ids[: whole_prefix_blocks(len(block_ids), size, spans)]
        self._pool.acquire(block_ids)
        request.table.block_ids = block_ids
        request.table.num_committed = len(block_ids)
        request.num_computed_tokens = len(block_ids) * size
        return request.num_computed_tokens

    def _place(self, request: Request, budget: int, batch: ScheduledBatch) -> Chunk | None:
        """Find room for the request's next chunk; None if not even a shorter one fits.

        A chunk that does not fit is cut before the last picture that begins in it, so that in the
        end no more encoder outputs are needed at a time than must be: `fits` counts on that.
        """
        start, spans = request.num_computed_tokens, request.prompt.bidirectional
        end = chunk_end(start, min(len(request.token_ids), start + budget), spans)
        while not self._hold(request, start, end, batch):
            begins = [request.prompt.media[i].needed_from for i in request.media_in(start, end)]
            shorter = chunk_end(start, max(begins), spans) if begins else start
            if not start < shorter < end:
                return None
            end = shorter
        return Chunk(request, start, end - start, samples=end == len(request.token_ids))

    def _hold(self, request: Request, start: int, end: int, batch: ScheduledBatch) -> bool:
        """Take the blocks and encoder outputs of tokens start..end-1, or none of them."""
        held: dict[int, MediaHandle] = {}
        blocks: list[int] | None = None
        for index in request.media_in(start, end):
            if index in request.media:
                continue
            handle = self._media_cache.acquire(request.prompt.media[index].item)
            if handle is None:
                break
            held[index] = handle
        else:
            blocks = self._pool.allocate(request.table.num_missing(end))
        if blocks is None:
            for handle in reversed(held.values()):
                self._media_cache.take_back(handle)
            return False
        request.table.block_ids += blocks
        request.media.update(held)
        batch.encodes += [EncodeJob(request, i, h) for i, h in held.items() if h.is_new]
        self.counters.media_queries += len(held)
        self.counters.media_hits += sum(not handle.is_new for handle in held.values())
        return True

    def _preempt(self, request: Request) -> None:
        self._running.remove(request)
        self._give_back(request)
        request.status = RequestStatus.WAITING
        request.num_preemptions += 1
        self.counters.num_preemptions += 1
        self._waiting.push_front(request)

    def _give_back(self, request: Request) -> None:
        for index in list(request.media):
            self._media_cache.release(request.media.pop(index))
        self._pool.release(request.table.take_all())
        request.num_computed_tokens = 0

    def _commit_full_blocks(self, request: Request) -> None:
        if not self._limits.prefix_caching:
            return
        table = request.table
        while (table.num_committed + 1) * table.block_size <= request.num_computed_tokens:
            index = table.num_committed
            content = request.chain.content(index, request.token_ids)
            self._pool.commit(table.block_ids[index], content.key, content)
            table.num_committed += 1
