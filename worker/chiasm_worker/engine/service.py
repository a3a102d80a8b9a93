"""The engine behind a queue: one thread computes, the event loop waits.

The thread owns the engine; the loop hands it closures and gets each step's progress back in one
call. A request that nobody waits for any more is aborted before the next step.

Must not know: HTTP.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import logging
import math
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from chiasm_contract.errors import InvalidRequest, InvariantError, Overloaded, Unavailable
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.timeline import choice_id, request_of

from chiasm_worker.engine.encoding import EncoderInputs
from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.epoch import Epoch
from chiasm_worker.engine.media_room import MediaRoom
from chiasm_worker.engine.noting import found_where
from chiasm_worker.engine.progress import Progress
from chiasm_worker.kvcache.prefix_cache import CacheScope
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.request import Prompt, Request, SamplingParams
from chiasm_worker.tiers.client import BlockClient
from chiasm_worker.tiers.link import Fetched, Namespace
from chiasm_worker.tiers.wanted import Patience, Wanted

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Command = Callable[[], None]
_FIRST_GUESS_SECONDS = 1.0
_MAX_RETRY_AFTER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class _Brought:
    """What a request asked the tiers for, and what came."""

    wanted: Wanted
    fetched: Fetched


class EngineService:
    """Asynchronous access to one engine. Use from one event loop.

    The engine's thread must be the only one that computes with several OpenMP threads. Each thread
    that does brings helpers of its own, and once there are more of them than cores, GNU's OpenMP
    lets all of them sleep between two products instead of waiting awake: decoding one stream of a
    107M model took 20 ms a token instead of 13 on two cores.

    Args:
        num_threads: OpenMP threads that the engine computes with.
        blocks: the way to the tiers; None: own memory only.
        patience: how long a request waits for them.
    """

    def __init__(
        self,
        engine: Engine,
        num_threads: int = 1,
        blocks: BlockClient | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.engine = engine
        self._blocks = blocks
        self._patience = patience or Patience()
        self._num_threads = num_threads
        self._capacity = engine.limits.max_num_seqs + engine.limits.max_waiting_requests
        self._num_inside = 0
        self._media_room = MediaRoom(engine.limits.max_media_bytes)
        self._mean_seconds = _FIRST_GUESS_SECONDS
        self._ids = itertools.count()
        self._waiters: dict[str, asyncio.Queue[Progress | None]] = {}
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._failure: BaseException | None = None
        self._has_given_up = False
        self._questions: set[asyncio.Future[Any]] = set()

    def start(self) -> None:
        """Start computing."""
        self._thread.start()
        self._connect()

    async def stop(self) -> None:
        """Stop after the current step; requests still inside end with Unavailable."""
        if self._blocks is not None:
            await self._blocks.stop()
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    def _connect(self) -> None:
        """Take part in the tiers as what the engine's present model is."""
        exchange = self.engine.tiers
        if self._blocks is not None and exchange is not None:
            self._blocks.start(exchange.namespace, exchange.not_kept)

    async def swap(
        self, model: LoadedModel, root: bytes, namespace: Callable[[int], Namespace | None]
    ) -> Epoch:
        """Compute new requests with another model, for which `engine.check_swap` holds.

        The generation passes first: what is on its way to or from the tiers is dropped.

        Args:
            namespace: the new generation -> what the tiers know its blocks as.

        Raises: Unavailable when the engine stops before it.
        """
        link = self.engine.tier_link
        link.engine_gen += 1
        if self._blocks is not None:
            await self._blocks.stop()
        swap = functools.partial(self.engine.swap, model, root, namespace(link.engine_gen))
        epoch = await self.ask(swap)
        self._connect()
        return epoch

    async def ask(self, question: Callable[[], T]) -> T:
        """What the engine's thread answers, between two steps: it should take no longer than one.

        Raises: Unavailable when the engine stops before it, and what `question` raises.
        """
        answer: asyncio.Future[T] = self._loop.create_future()

        def say(value: T | None, error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(cast("T", value))

        def run() -> None:
            try:
                self._loop.call_soon_threadsafe(say, question(), None)
            except Exception as error:
                self._loop.call_soon_threadsafe(say, None, error)

        self._questions.add(answer)
        try:
            if self._has_given_up:
                raise Unavailable("The engine stopped; the worker must be restarted.")
            self._commands.put(run)
            return await answer
        finally:
            self._questions.discard(answer)

    @property
    def is_healthy(self) -> bool:
        """Whether requests are being computed."""
        return self._thread.is_alive() and self._failure is None

    @property
    def failure(self) -> BaseException | None:
        """Why the engine stopped by itself; None while it goes on, or was stopped."""
        return self._failure

    @contextmanager
    def admission(self, num_choices: int = 1) -> Iterator[None]:
        """Places for one request, from before its media are decoded until its last token.

        Each choice takes a place. Raises: Overloaded when too few are left, InvalidRequest when
        there are too few altogether.
        """
        if num_choices > self._capacity:
            raise InvalidRequest(
                f"n is {num_choices}; this worker computes or queues {self._capacity} answers at "
                f"a time. Ask for 1 to {self._capacity}.",
                param="n",
            )
        if self._num_inside + num_choices > self._capacity:
            raise Overloaded(
                f"{self._num_inside} answers are running or waiting, of {self._capacity} that this "
                "worker takes. Try again later or ask another replica.",
                retry_after_seconds=self._retry_after_seconds(),
            )
        self._num_inside += num_choices
        started = self._loop.time()
        try:
            yield
        finally:
            self._num_inside -= num_choices
        # Not reached by what was refused or given up: it says nothing of how long answers take.
        self._mean_seconds += 0.1 * (self._loop.time() - started - self._mean_seconds)

    @contextmanager
    def media(self, inputs: Sequence[EncoderInputs]) -> Iterator[None]:
        """Room for a request's processed media until its end.

        Raises: Overloaded when those of others take it.
        """
        sizes_bytes: dict[Hashable, int] = {each: each.num_bytes for each in inputs}
        with self._media_room.hold(sizes_bytes, self._retry_after_seconds()):
            yield

    async def generate(
        self,
        name: str,
        prompt: Prompt,
        params: SamplingParams,
        inputs: Sequence[EncoderInputs],
        num_choices: int = 1,
        priority: int = 0,
        scope: CacheScope | None = None,
    ) -> AsyncGenerator[list[Progress]]:
        """Batches of progress, the last of which holds the end of the last choice, or a failure.

        Leaving the iteration early aborts the request. The first `anext` already validates.
        Raises: ClientFault when the request cannot run here, Unavailable when the engine stops.
        """
        epoch = self.engine.epoch  # Held until the end: what begins with a model ends with it.
        scope = scope or epoch.scope(SHARED_SCOPE_FP)
        serial = next(self._ids)  # What the caller calls a request may come twice.
        request, *others = (
            self.engine.make_request(
                choice_id(name, serial, choice),
                prompt,
                params,
                choice,
                priority,
                scope,
            )
            for choice in range(num_choices)
        )
        brought = await self._fetch(request)
        if self._has_given_up:  # Nobody would wake this request any more.
            raise Unavailable("The engine stopped before the answer began; ask again.")
        waiter: asyncio.Queue[Progress | None] = asyncio.Queue()
        running = {choice.request_id for choice in (request, *others)}
        self._waiters.update(dict.fromkeys(running, waiter))
        adding = functools.partial(self._add, request, inputs, others, brought)
        self._commands.put(functools.partial(contextvars.copy_context().run, adding))
        failed = False
        try:
            while running and not failed:
                batch = [await waiter.get()]
                while not waiter.empty():
                    batch.append(waiter.get_nowait())
                known = [progress for progress in batch if progress is not None]
                if len(known) < len(batch):
                    raise Unavailable("The engine stopped before the answer ended; ask again.")
                failed = any(progress.failed for progress in known)
                ended = {p.request_id for p in known if p.failed or p.finish_reason is not None}
                running -= ended
                for request_id in ended:
                    del self._waiters[request_id]
                yield known
        finally:
            for request_id in running:
                del self._waiters[request_id]
            if running:
                self._commands.put(functools.partial(self.engine.abort, *running))

    async def _fetch(self, request: Request) -> _Brought | None:
        """What the tiers have for a request, if they say so in time."""
        client, exchange = self._blocks, self.engine.tiers
        if client is None or exchange is None or not client.is_connected:
            return None
        if request.scope.engine_gen != exchange.namespace.engine_gen:
            return None
        # A long prompt's keys take milliseconds.
        wanted = await asyncio.to_thread(self.engine.wanted, request)
        if not wanted:
            return None
        limit_seconds = self._patience.seconds(wanted, self.engine.pool.costs)
        timeline, name = self.engine.timeline, request_of(request.request_id)
        readers = (exchange.namespace.engine_gen, request.scope.scope_fp)
        fetch = wanted.fetch(*readers, timeline.trace_of(name))
        started = timeline.clock()
        fetched = await client.fetch(fetch, limit_seconds)
        timeline.notes(name).since(started, "fetch", **found_where(fetch, fetched))
        return None if fetched is None else _Brought(wanted, fetched)

    def _retry_after_seconds(self) -> int:
        rounds = self.engine.scheduler.num_waiting / self.engine.limits.max_num_seqs
        return min(_MAX_RETRY_AFTER_SECONDS, math.ceil(self._mean_seconds * max(1.0, rounds)))

    def _run(self) -> None:
        # Asked first: the first question sets a thread to what another one set last.
        torch.get_num_threads()
        torch.set_num_threads(self._num_threads)
        try:
            while self._obey():
                progress = self.engine.step()
                if progress:
                    self._loop.call_soon_threadsafe(self._deliver, progress)
                offers = self.engine.take_offers()
                if offers and self._blocks is not None:
                    self._loop.call_soon_threadsafe(self._blocks.store, offers)
        except BaseException as error:
            self._failure = error
            logger.critical("The engine stopped", exc_info=True)
            if not isinstance(error, Exception):
                raise
        finally:
            self._loop.call_soon_threadsafe(self._give_up)

    def _add(
        self,
        request: Request,
        inputs: Sequence[EncoderInputs],
        others: Sequence[Request],
        brought: _Brought | None,
    ) -> None:
        if brought is not None:
            self._restore(request, brought)
        try:
            self.engine.add(request, inputs, others)
        except Exception:
            logger.exception("Request %s cannot be queued", request.request_id)
            failed = Progress(request.request_id, None, "", failed=True)
            self._loop.call_soon_threadsafe(self._deliver, [failed])

    def _restore(self, request: Request, brought: _Brought) -> None:
        """Whatever fails here, the request computes."""
        notes = self.engine.timeline.notes(request_of(request.request_id))
        try:
            with notes.phase("restore"):
                self.engine.restore(request, brought.wanted, brought.fetched)
        except InvariantError:
            raise
        except Exception:
            logger.exception("What came for request %s cannot be used", request.request_id)
        finally:
            if self._blocks is not None:
                self._loop.call_soon_threadsafe(self._blocks.release, brought.fetched)

    def _obey(self) -> bool:
        """Run all commands, waiting for one while there is nothing to compute; False to stop."""
        while not self.engine.has_requests or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command()
        return True

    def _deliver(self, progress: Sequence[Progress]) -> None:
        for item in progress:
            waiter = self._waiters.get(item.request_id)
            if waiter is not None:
                waiter.put_nowait(item)

    def _give_up(self) -> None:
        self._has_given_up = True
        for question in self._questions:
            if not question.done():
                question.set_exception(Unavailable("The engine stopped before it could do that."))
        for waiter in self._waiters.values():
            waiter.put_nowait(None)
