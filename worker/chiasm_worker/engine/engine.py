"""The engine: requests in, one `step` at a time, progress out.

Synchronous and single-threaded; whoever owns it calls `step` from one thread. Ties the scheduler
(which chunk), the runner (which numbers) and each request's detokenizer (which text) together.

Must not know: HTTP, asyncio, pictures' bytes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract.config import EngineLimits
from chiasm_contract.errors import InvalidRequest, InvariantError, RequestTooLarge

from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.engine.arena import Arena
from chiasm_worker.engine.detokenizer import Detokenizer
from chiasm_worker.engine.runner import EncoderInputs, Runner
from chiasm_worker.engine.sampler import RowSampler, SampledToken, TopLogprobs
from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.prefix_cache import ContentChain, cross_root
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.request import FinishReason, Prompt, Request, SamplingParams
from chiasm_worker.sched.scheduler import ScheduledBatch, Scheduler, SchedulerLimits

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Tokens of one request."""

    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_media_tokens: Counter[str]  # by modality
    num_uncompressed_image_tokens: int
    image_compression: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step brought for one request: a token, an end, or both."""

    request_id: str
    token_id: int | None
    text: str
    logprobs: TopLogprobs | None = None
    finish_reason: FinishReason | None = None
    usage: RequestUsage | None = None
    failed: bool = False


@dataclass(slots=True)
class EngineTotals:
    """Totals since start."""

    prompt_tokens: int = 0
    image_tokens: Counter[int] = field(default_factory=Counter)  # by compression
    generation_tokens: int = 0
    steps: int = 0
    step_tokens: int = 0
    step_seconds: float = 0.0
    model_seconds: float = 0.0
    aborted: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Live:
    request: Request
    inputs: Sequence[EncoderInputs]
    detokenizer: Detokenizer


class Engine:
    """One model, one pool, any number of requests."""

    def __init__(self, model: LoadedModel, limits: EngineLimits, root: bytes) -> None:
        self.model = model
        self.limits = limits
        self.spec = cache_spec(model, limits)
        self.pool = BlockPool(self.spec.num_blocks(limits.kv_cache_bytes))
        check_limits(limits, self.spec, self.pool.num_blocks)
        width = model.decoder.spec.hidden_size * (1 + model.num_deepstack)
        num_cross = len(model.decoder.spec.cross_layers)
        self.media_cache = MediaCache(
            self.pool,
            self.spec,
            root,
            width * model.dtype.itemsize,
            self.spec.cross_vectors(num_cross) if num_cross else 0,
        )
        arena = Arena(self.spec, self.pool.num_blocks, model.dtype, model.device, num_cross)
        self.attention = ReferenceAttention(arena.kv, arena.cross)
        self.runner = Runner(model, arena, self.attention)
        self.scheduler = Scheduler(
            SchedulerLimits(
                max_num_seqs=limits.max_num_seqs,
                max_num_batched_tokens=limits.max_num_batched_tokens,
                prefix_caching=limits.prefix_caching,
            ),
            self.pool,
            self.media_cache,
        )
        self.totals = EngineTotals()
        self._root = root
        self._tokenizer: Any = model.processor.tokenizer
        self._live: dict[str, _Live] = {}
        self._samplers: dict[str, RowSampler] = {}

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

    def make_request(self, request_id: str, prompt: Prompt, params: SamplingParams) -> Request:
        """A request that can run to its end here; does not queue it and may run in any thread.

        Raises: InvalidRequest when it is longer than the model allows, RequestTooLarge when its
        blocks would not fit even alone.
        """
        num_prompt, num_tokens = len(prompt.token_ids), len(prompt.token_ids) + params.max_tokens
        if num_tokens > self.limits.max_model_len:
            raise InvalidRequest(
                f"The prompt has {num_prompt} tokens (of them "
                f"{prompt.num_media_tokens.total()} for media) and max_tokens is "
                f"{params.max_tokens}; together at most "
                f"{self.limits.max_model_len} are allowed. Shorten the one or lower the other.",
                param="messages",
                code="context_length_exceeded",
            )
        request = Request(
            request_id=request_id,
            prompt=prompt,
            params=params,
            chain=ContentChain(
                cross_root(self._root, prompt.cross),
                self.spec.block_size,
                prompt.spans,
                prompt.bidirectional,
            ),
            table=BlockTable(self.spec.block_size),
        )
        if not self.scheduler.fits(request):
            at_once = prompt.bidirectional or prompt.cross
            raise RequestTooLarge(
                f"The request needs more cache blocks than the {self.pool.num_blocks} of this "
                "worker"
                + (f"; its {len(prompt.media)} media items are read at once" if at_once else "")
                + ". Send fewer or smaller pictures, or lower max_tokens."
            )
        return request

    def add(self, request: Request, inputs: Sequence[EncoderInputs]) -> None:
        """Queue a request made by `make_request`, with the encoder inputs of its spans."""
        detokenizer = Detokenizer(self._tokenizer, request.params.stop)
        sampler = RowSampler(request.params)
        # From here on nothing can fail: a request is known everywhere or nowhere.
        self._live[request.request_id] = _Live(request, inputs, detokenizer)
        self._samplers[request.request_id] = sampler
        self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """Forget a request and free its blocks; unknown ids are finished ones."""
        if request_id in self._live:
            self._end(self._live[request_id].request, FinishReason.ABORT)
            self.totals.aborted += 1

    def step(self) -> list[Progress]:
        """Compute one batch; what fails ends its requests, never the engine.

        Raises: InvariantError when the bookkeeping is wrong, which nothing can go on from.
        """
        started = time.perf_counter()
        batch = self.scheduler.schedule()
        media = {
            chunk.request.request_id: self._live[chunk.request.request_id].inputs
            for chunk in batch.chunks
        }
        before_model = time.perf_counter()
        try:
            sampled = self.runner.run(batch, self._samplers, media)
        except Exception:
            logger.exception("A step with %d requests failed", len(batch.chunks))
            return self._fail(batch)
        self.totals.model_seconds += time.perf_counter() - before_model
        self.totals.steps += 1
        self.totals.step_tokens += batch.num_tokens
        tokens = {request_id: token.token_id for request_id, token in sampled.items()}
        self.scheduler.update(batch, tokens)
        progress = [
            self._advance_or_fail(self._live[request_id], token)
            for request_id, token in sampled.items()
        ]
        self.totals.step_seconds += time.perf_counter() - started
        return progress

    def _advance_or_fail(self, live: _Live, token: SampledToken) -> Progress:
        try:
            return self._advance(live, token)
        except InvariantError:
            raise
        except Exception:
            logger.exception("The answer of request %s cannot go on", live.request.request_id)
            return self._end_failed(live.request)

    def _advance(self, live: _Live, token: SampledToken) -> Progress:
        request, detokenizer = live.request, live.detokenizer
        self.totals.generation_tokens += 1
        if request.num_output_tokens == 1:
            self.totals.prompt_tokens += request.num_prompt_tokens
            self.totals.image_tokens.update(request.prompt.image_tokens)
        text = detokenizer.push(token.token_id)
        reason = None
        if detokenizer.is_stopped or token.token_id in self.model.eos_token_ids:
            reason = FinishReason.STOP
        elif request.num_output_tokens >= request.params.max_tokens:
            reason = FinishReason.LENGTH
        usage = None
        if reason is not None:
            text += detokenizer.finish()
            usage = self._end(request, reason)
        return Progress(request.request_id, token.token_id, text, token.logprobs, reason, usage)

    def _end(self, request: Request, reason: FinishReason) -> RequestUsage:
        self.scheduler.finish(request, reason)
        del self._live[request.request_id], self._samplers[request.request_id]
        usage = RequestUsage(
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_cached_tokens=request.num_cached_tokens or 0,
            num_media_tokens=request.prompt.num_media_tokens,
            num_uncompressed_image_tokens=request.prompt.num_uncompressed_image_tokens,
            image_compression=request.prompt.image_compression,
        )
        return usage

    def _fail(self, batch: ScheduledBatch) -> list[Progress]:
        self.scheduler.abandon(batch)
        return [self._end_failed(chunk.request) for chunk in batch.chunks]

    def _end_failed(self, request: Request) -> Progress:
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


def check_limits(limits: EngineLimits, spec: KVCacheSpec, num_blocks: int) -> None:
    """Raise ValueError if the budgets promise what the pool cannot hold."""
    if limits.max_model_len > num_blocks * spec.block_size:
        raise ValueError(
            f"kv_cache_bytes {limits.kv_cache_bytes} holds {num_blocks * spec.block_size} tokens, "
            f"less than max_model_len {limits.max_model_len}. Raise the one or lower the other."
        )
