"""The engine: requests in, one `step` at a time, progress out.

Synchronous and single-threaded; whoever owns it calls `step` from one thread. Ties the scheduler
(which chunk), the runner (which numbers) and each request's answer (which text) together.

Must not know: HTTP, asyncio, pictures' bytes.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Sequence

from chiasm_contract.config import EngineLimits
from chiasm_contract.errors import InvariantError
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.timeline import ENGINE, Event

from chiasm_worker.attention.choose import make
from chiasm_worker.engine.arena import Arena
from chiasm_worker.engine.choices import HeldChoices
from chiasm_worker.engine.encoding import EncoderInputs, EncodingError
from chiasm_worker.engine.epoch import Epoch, check_exchangeable
from chiasm_worker.engine.fitting import check_length, too_large
from chiasm_worker.engine.live import Live
from chiasm_worker.engine.noting import PhaseTimes, ended, queued, step_of
from chiasm_worker.engine.progress import EngineTotals, Progress, RequestUsage
from chiasm_worker.engine.runner import Runner
from chiasm_worker.engine.sampler import SampledToken
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain, cross_root
from chiasm_worker.kvcache.spec import KVCacheSpec, check_limits
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.request import FinishReason, Prompt, Request, SamplingParams
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.sched.scheduler import Scheduler, SchedulerLimits
from chiasm_worker.sched.spans import whole_prefix_blocks
from chiasm_worker.tiers.exchange import TierExchange
from chiasm_worker.tiers.link import Fetched, Namespace, Offer, TierLink
from chiasm_worker.tiers.wanted import Wanted
from chiasm_worker.tiers.worth import OfferPolicy
from chiasm_worker.timeline.ring import Timeline

logger = logging.getLogger(__name__)


class Engine:
    """One pool, any number of requests, one model: two while a swap is going on.

    Args:
        model: computes.
        limits: the budgets.
        root: what every block key descends from.
        namespace: what the tiers know the blocks as; None: there are no tiers.
        offers: which blocks the tiers are offered.
    """

    def __init__(
        self,
        model: LoadedModel,
        limits: EngineLimits,
        root: bytes,
        namespace: Namespace | None = None,
        offers: OfferPolicy | None = None,
    ) -> None:
        self.limits = limits
        self.spec = cache_spec(model, limits)
        self.pool = BlockPool(self.spec.num_blocks(limits.kv_cache_bytes))
        check_limits(limits, self.spec, self.pool.num_blocks)
        num_cross = len(model.decoder.spec.cross_layers)
        self.media_cache = MediaCache(
            self.pool,
            self.spec,
            model.media_width * model.dtype.itemsize,
            self.spec.cross_vectors(num_cross) if num_cross else 0,
        )
        self.arena = Arena(self.spec, self.pool.num_blocks, model.dtype, model.device, num_cross)
        attention = make(model.choice, self.arena.kv, self.arena.cross)
        self.runner = Runner(model, self.arena, attention, self.pool.costs)
        self.scheduler = Scheduler(
            SchedulerLimits(
                max_num_seqs=limits.max_num_seqs,
                max_num_batched_tokens=limits.max_num_batched_tokens,
                prefix_caching=limits.prefix_caching,
                max_num_encoder_tokens=limits.max_num_encoder_tokens,
            ),
            self.pool,
            self.media_cache,
        )
        self.totals = EngineTotals()
        self.timeline = Timeline()
        self.tier_link = TierLink()
        self._offer_policy = offers
        self._offers: list[Offer] = []
        # What began with a model finds it here as long as it runs.
        self._epochs: weakref.WeakValueDictionary[int, Epoch] = weakref.WeakValueDictionary()
        self.epoch = self._begin(0, model, root, namespace)
        self._live: dict[str, Live] = {}
        self._held = HeldChoices()

    @property
    def model(self) -> LoadedModel:
        """What new requests are computed with."""
        return self.epoch.model

    @property
    def tiers(self) -> TierExchange | None:
        """What new requests have to do with the tiers."""
        return self.epoch.tiers

    @property
    def num_models(self) -> int:
        """Models in memory: those that new requests or running ones are computed with."""
        return len(self._epochs)

    def check_swap(self, model: LoadedModel) -> None:
        """Raise ValueError saying why another model cannot take this one's place."""
        if model.max_positions < self.limits.max_model_len:
            raise ValueError(
                f"The model was made for {model.max_positions} positions, fewer than the "
                f"{self.limits.max_model_len} that are served. Restart the worker instead."
            )
        check_exchangeable(self.model, model, self.spec, cache_spec(model, self.limits))

    def swap(self, model: LoadedModel, root: bytes, namespace: Namespace | None) -> Epoch:
        """Compute new requests with another model; those that run end with theirs.

        The fence (`tier_link.engine_gen`) has been raised before: it is the new generation.

        Raises: ValueError when the pool is not one for that model.
        """
        started = self.timeline.clock()
        self.check_swap(model)
        self.epoch = self._begin(self.tier_link.engine_gen, model, root, namespace)
        self.timeline.add(Event(ENGINE, "swap", started, self.timeline.clock()))
        return self.epoch

    def _begin(
        self, engine_gen: int, model: LoadedModel, root: bytes, namespace: Namespace | None
    ) -> Epoch:
        tiers = None
        if namespace is not None:
            memory = (self.pool, self.media_cache, self.arena)
            tiers = TierExchange(*memory, namespace, self.tier_link, self._offer_policy)
        epoch = Epoch(engine_gen, model, root, tiers)
        self._epochs[engine_gen] = epoch
        return epoch

    @property
    def has_requests(self) -> bool:
        """Whether a step would do anything."""
        return self.scheduler.has_requests

    def room(self, prompt: Prompt) -> int:
        """How many tokens may follow a prompt here; below 1 if not even one.

        The encoder output of its largest picture takes blocks of its own.
        """
        fitting = self.scheduler.max_blocks(prompt) * self.spec.block_size
        return min(self.limits.max_model_len, fitting) - len(prompt.token_ids)

    def to_encode(self, prompt: Prompt, scope: CacheScope | None = None) -> list[bool]:
        """For each media item of a prompt, whether the encoder would run for it as things are.

        May be asked from any thread, and is a guess: the cache goes on changing.
        """
        scope = scope or self.epoch.scope(SHARED_SCOPE_FP)
        cache = self.media_cache
        missing = [not cache.contains(scope.root, span.item) for span in prompt.media]
        if not any(missing):
            return missing
        # What the prefix cache holds of a prompt needs no encoder's output.
        chain = self._chain(scope, prompt)
        found = self.scheduler.find_prefix(chain, prompt, prompt.token_ids)
        hit = self.spec.block_size * len(found)
        spans = zip(missing, prompt.media, strict=True)
        return [is_missing and span.needed_until > hit for is_missing, span in spans]

    def make_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        choice: int = 0,
        priority: int = 0,
        scope: CacheScope | None = None,
    ) -> Request:
        """A request that can run to its end here; does not queue it and may run in any thread.

        Args:
            scope: of the epoch by whose model the prompt was read; None: everybody's of this one.

        Raises: InvalidRequest when it is longer than the model allows, RequestTooLarge when its
        blocks would not fit even alone.
        """
        check_length(prompt, params, self.limits.max_model_len)
        scope = scope or self.epoch.scope(SHARED_SCOPE_FP)
        request = Request(
            request_id=request_id,
            prompt=prompt,
            params=params,
            scope=scope,
            chain=self._chain(scope, prompt),
            table=BlockTable(self.spec.block_size),
            priority=priority,
            choice=choice,
        )
        if not self.scheduler.fits(request):
            raise too_large(prompt, self.pool.num_blocks)
        return request

    def add(
        self, request: Request, inputs: Sequence[EncoderInputs], others: Sequence[Request] = ()
    ) -> None:
        """Queue a request made by `make_request`, with the encoder inputs of its spans.

        Args:
            others: further choices for the same prompt; they start when it has been computed.
        """
        epoch = self._epochs[request.scope.engine_gen]
        choices = (request, *others)
        live = {c.request_id: Live.of(c, epoch, inputs) for c in choices}
        # From here on nothing can fail: a request is known everywhere or nowhere.
        self._live.update(live)
        self._held.hold(request, others)
        self.timeline.instant(request.request_id, "queued", queued(request, len(choices)))
        self.scheduler.add(request)

    def wanted(self, request: Request) -> Wanted | None:
        """What the tiers could bring for a request before it is queued; may run in any thread."""
        if self.tiers is None or not request.scope.is_offered:
            return None
        size = self.spec.block_size
        num_blocks = (len(request.token_ids) - 1) // size if self.limits.prefix_caching else 0
        spans = request.prompt.bidirectional
        return self.tiers.wanted(request, whole_prefix_blocks(num_blocks, size, spans))

    def restore(self, request: Request, wanted: Wanted, fetched: Fetched) -> None:
        """Take what the tiers brought for a request that is queued next."""
        if self.tiers is not None and request.scope.engine_gen == self.epoch.engine_gen:
            self.tiers.restore(request, wanted, fetched)

    def take_offers(self) -> list[Offer]:
        """What the last steps wrote for the tiers."""
        offers, self._offers = self._offers, []
        return offers

    def abort(self, *request_ids: str) -> None:
        """Forget one request's choices and free their blocks; unknown ids are finished ones."""
        known = [request_id for request_id in request_ids if request_id in self._live]
        for request_id in known:
            self._end(self._live[request_id].request, FinishReason.ABORT)
        self.totals.aborted += bool(known)

    def step(self) -> list[Progress]:
        """Compute one batch; what fails ends the requests to blame, never the engine.

        Raises: InvariantError when the bookkeeping is wrong, which nothing can go on from.
        """
        started = time.perf_counter()
        batch = self.scheduler.schedule()
        epoch = self._live[batch.chunks[0].request.request_id].epoch
        self.runner.use(epoch.model)
        sampling = [chunk.request.request_id for chunk in batch.chunks if chunk.samples]
        encoding = [job.request.request_id for job in batch.encodes]
        scheduled, encoder_seconds = time.perf_counter(), self.runner.encoding.seconds
        try:
            sampled = self.runner.run(
                batch,
                {request_id: self._live[request_id].sampler for request_id in sampling},
                {request_id: self._live[request_id].inputs for request_id in encoding},
            )
        except Exception as error:
            who = [self._live[chunk.request.request_id].known_as for chunk in batch.chunks]
            logger.exception("A step failed", extra={"fields": {"requests": who}})
            return self._fail(batch, error)
        seconds = time.perf_counter() - scheduled
        self.totals.model_seconds += seconds
        self._learn_prefill(batch, seconds - (self.runner.encoding.seconds - encoder_seconds))
        self.totals.steps += 1
        self.totals.step_tokens += batch.num_tokens
        tokens = {request_id: token.token_id for request_id, token in sampled.items()}
        computed = [c.request for c in batch.chunks if c.request.scope.is_offered]
        if epoch.tiers is not None:
            epoch.tiers.begin_offers(computed)
        self.scheduler.update(batch, tokens)
        if epoch.tiers is not None:
            self._offers += epoch.tiers.finish_offers(computed)
        progress = [
            self._advance_or_fail(self._live[request_id], token)
            for request_id, token in sampled.items()
        ]
        self.runner.use(self.model)  # Or it would keep a model that nobody needs any more.
        sampled_at, ended_at = scheduled + seconds, time.perf_counter()
        times = PhaseTimes(started, scheduled, *self.runner.times, sampled_at, ended_at)
        books = (self.runner.encoding, self.scheduler, self.pool)
        self.timeline.step(step_of(self.totals.steps, batch, times, *books))
        self.totals.step_seconds += time.perf_counter() - started
        return progress

    def _learn_prefill(self, batch: ScheduledBatch, seconds: float) -> None:
        """Learn from steps that mostly prefill; decoding costs far more a token."""
        prefilled = sum(chunk.num_tokens for chunk in batch.chunks if chunk.num_tokens > 1)
        if 2 * prefilled >= batch.num_tokens:
            self.pool.costs.observe_prefill(batch.num_tokens, seconds)

    def _advance_or_fail(self, live: Live, token: SampledToken) -> Progress:
        try:
            return self._advance(live, token)
        except InvariantError:
            raise
        except Exception:
            logger.exception("An answer cannot go on", extra={"fields": live.known_as})
            return self._end_failed(live.request)

    def _advance(self, live: Live, token: SampledToken) -> Progress:
        request = live.request
        self.totals.generation_tokens += 1
        if request.num_output_tokens == 1:
            if request.choice == 0:  # The later choices found its prompt in the cache.
                self.totals.prompt_tokens += request.num_prompt_tokens
                self.totals.image_tokens.update(request.prompt.image_tokens)
                uncompressed = request.prompt.num_uncompressed_image_tokens
                self.totals.uncompressed_image_tokens += uncompressed
            # Before later arrivals: while the blocks of the prompt are there.
            for other in self._held.release(request):
                self.scheduler.add(other, beside=request)
        piece = live.answer.push(token)
        usage = None if piece.finish_reason is None else self._end(request, piece.finish_reason)
        return Progress(
            request.request_id,
            token.token_id,
            piece.text,
            piece.shown,
            piece.finish_reason,
            piece.stop_reason,
            usage,
            choice=request.choice,
        )

    def _chain(self, scope: CacheScope, prompt: Prompt) -> ContentChain:
        root = cross_root(scope.root, prompt.cross)
        return ContentChain(root, self.spec.block_size, prompt.spans, prompt.bidirectional)

    def _end(self, request: Request, reason: FinishReason) -> RequestUsage:
        if not self._held.drop(request):
            self.scheduler.finish(request, reason)
            successor = self._held.succeed(request)
            if successor is not None:
                self.scheduler.add(successor, beside=request)
        self.timeline.instant(request.request_id, "end", ended(request, reason))
        epoch = self._live.pop(request.request_id).epoch
        if epoch.tiers is not None:
            epoch.tiers.end(request)
        return RequestUsage.of(request)

    def _fail(self, batch: ScheduledBatch, error: Exception) -> list[Progress]:
        """End the requests to blame; the others are scheduled again.

        To blame is the item that the encoder failed on, else every item new in this step, else the
        whole batch: each failing step ends a request, so failing comes to an end.
        """
        self.scheduler.abandon(batch)
        jobs = [error.job] if isinstance(error, EncodingError) else batch.encodes
        blamed = [job.request for job in jobs] or [chunk.request for chunk in batch.chunks]
        return [self._end_failed(request) for request in dict.fromkeys(blamed)]

    def _end_failed(self, request: Request) -> Progress:
        self.timeline.instant(request.request_id, "failed")
        self._end(request, FinishReason.ABORT)
        self.totals.failed += 1
        return Progress(request.request_id, None, "", failed=True)


def cache_spec(model: LoadedModel, limits: EngineLimits) -> KVCacheSpec:
    """The shape of the model's cache blocks."""
    decoder = model.decoder.spec
    return KVCacheSpec(
        num_layers=decoder.num_kv_layers,
        num_kv_heads=decoder.num_kv_heads,
        head_dim=decoder.head_dim,
        block_size=limits.block_size,
        dtype_bytes=model.dtype.itemsize,
    )
