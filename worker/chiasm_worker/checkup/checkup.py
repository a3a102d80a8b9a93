"""The order of a checkup: what is asked of the engine, and when.

The engine goes on serving. Its thread is asked between two steps only, and each question takes no
longer than a step or two; the built-in request waits in the queue behind everybody else's; files
are read in a thread of their own. Whatever cannot be had in time is reported as not looked at. When
it ends nothing of it is left: the watcher is gone, and blocks of the built-in request are free.

Must not know: HTTP, what is judged.
"""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

import torch
from chiasm_contract.checkup import CheckupReport
from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import ChiasmError, ClientFault, InvariantError, Unavailable
from chiasm_contract.messages import IdentityReport
from chiasm_contract.timeline import request_of

from chiasm_worker.checkup.books import Books, read_books
from chiasm_worker.checkup.claims import identity_faults
from chiasm_worker.checkup.drift import STEPS, Drift, Truth, compared, limit_of
from chiasm_worker.checkup.judging import report
from chiasm_worker.checkup.readings import Readings, Steps, Stored
from chiasm_worker.checkup.reference import PlainPass
from chiasm_worker.checkup.sample import NUM_TOKENS, SCOPE_FP, sample
from chiasm_worker.checkup.stored import Pace, compare_stored
from chiasm_worker.checkup.visibility import visibility_faults
from chiasm_worker.checkup.watcher import Watcher
from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.epoch import Epoch
from chiasm_worker.engine.service import EngineService
from chiasm_worker.generation import Generation
from chiasm_worker.kvcache.prefix_cache import CacheScope
from chiasm_worker.loading import aside
from chiasm_worker.modality.shared_media import MediaInputs
from chiasm_worker.request import Prompt, Request, SamplingParams

_SAMPLE_SECONDS = 25.0
_FILES_SECONDS = 15.0
_ROOM_TRIES, _ROOM_TRY_SECONDS = 60, 0.05
# Blocks up to here are checked one by one; more would take longer than a step.
_MAX_CHECKED_BLOCKS = 4096
# One pass of so many tokens is short enough wherever steps are shorter.
_LEAST_STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at."""

    service: EngineService
    generation: Generation
    identity: IdentityReport
    images: ImageLimits


async def examine(subject: Subject) -> CheckupReport:
    """Look once.

    Raises: Unavailable when the engine has stopped for another reason than its own rules.
    """
    started = time.monotonic()
    readings = await _Examination(subject).readings()
    return report(readings).model_copy(update={"seconds": time.monotonic() - started})


@dataclass(frozen=True, slots=True)
class _Sample:
    """The built-in request, prepared."""

    epoch: Epoch
    prompt: Prompt
    inputs: list[MediaInputs]
    priority: int

    @property
    def scope(self) -> CacheScope:
        """Of nobody else; nothing of it goes to the tiers."""
        return replace(self.epoch.scope(SCOPE_FP), is_offered=False)


class _Examination:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._service = subject.service
        self._engine = subject.service.engine
        self._name = f"checkup-{uuid.uuid4().hex}"
        self._watcher = Watcher(self._name)

    async def readings(self) -> Readings:
        """Of a running engine, or of one that its own rules have stopped.

        Raises: Unavailable when it stops for another reason: then its books may be half written.
        """
        try:
            return await self._of_a_running_one()
        except Unavailable:
            failure = self._service.failure
            if not isinstance(failure, InvariantError):
                raise
            return self._of_a_stopped_one(failure)

    def _of_a_stopped_one(self, failure: InvariantError) -> Readings:
        """Its thread has ended, so that nothing is asked of it."""
        words = "the engine has stopped"
        return Readings(
            steps=replace(self._steps(None), failure=words),
            books=(self._books(),),
            drift=words,
            stored=words,
            stopped=failure.message,
        )

    async def _of_a_running_one(self) -> Readings:
        epoch = self._engine.epoch
        pace = Pace(_FILES_SECONDS, time.monotonic, time.sleep)
        reading_files = asyncio.wrap_future(
            aside(
                functools.partial(compare_stored, epoch.model, self._subject.identity.fields, pace)
            )
        )
        books = [await self._service.ask(self._begin)]
        try:
            drift = await self._drift_or_why(books[0])
            visibility = await self._visibility_once_there_is_room()
        finally:
            books.append(await self._service.ask(self._end))
        broken = await self._service.ask(self._broken_books)
        stored = await _files_or_why(reading_files)
        faults: tuple[str, ...] = ()
        if self._engine.epoch is epoch:
            faults = tuple(identity_faults(self._engine, self._subject.identity))
        else:
            stored = "another model took the place of the one that was looked at"
        return Readings(
            steps=self._steps(visibility),
            books=tuple(books),
            drift=drift,
            stored=stored,
            broken_books=broken,
            identity_faults=faults,
        )

    def _begin(self) -> Books:
        self._engine.runner.watcher = self._watcher
        return self._books()

    def _end(self) -> Books:
        self._engine.runner.watcher = None
        self._watcher.end()
        for request in self._watcher.requests.values():
            forget(self._engine, request)
        return self._books()

    def _books(self) -> Books:
        engine = self._engine
        return read_books(
            engine.pool, engine.scheduler.requests, engine.totals.steps, engine.spec.record_bytes
        )

    def _broken_books(self) -> str | None:
        if self._engine.pool.num_blocks > _MAX_CHECKED_BLOCKS:
            return None
        try:
            self._engine.scheduler.check()
        except InvariantError as error:
            return error.message
        return None

    async def _visibility_once_there_is_room(self) -> tuple[str, ...] | None:
        """What runs may take the whole pool, but gives some of it back with each answer; where
        nothing runs there will be no more room than there is."""
        for _ in range(_ROOM_TRIES):
            found, is_busy = await self._service.ask(self._visibility)
            if found is not None or not is_busy:
                return found
            await asyncio.sleep(_ROOM_TRY_SECONDS)
        return None

    def _visibility(self) -> tuple[tuple[str, ...] | None, bool]:
        """The faults, or None without room; and whether requests run."""
        engine = self._engine
        model = engine.model
        faults = visibility_faults(
            engine.runner.attention,
            engine.pool,
            model.decoder.spec,
            engine.spec.block_size,
            torch.empty(0, dtype=model.dtype, device=model.device),
        )
        return None if faults is None else tuple(faults), engine.has_requests

    def _steps(self, visibility: tuple[str, ...] | None) -> Steps:
        watcher = self._watcher
        return Steps(
            num_steps=watcher.num_steps,
            num_tokens=watcher.num_tokens,
            num_faulty=watcher.shapes.num_steps,
            shape_faults=tuple(watcher.shapes.sentences),
            num_misplaced=watcher.positions.num_steps,
            position_faults=tuple(watcher.positions.sentences),
            visibility=visibility,
            failure=watcher.failure,
        )

    async def _drift_or_why(self, books: Books) -> Drift | str:
        try:
            async with asyncio.timeout(_SAMPLE_SECONDS):
                ready = await self._prepared()
                self._check_room(ready.prompt, books)
                return await self._drift(ready)
        except TimeoutError:
            return (
                f"the built-in request was not answered in {_SAMPLE_SECONDS:.0f} s: others are "
                "served before it. Look again when less is asked."
            )
        except ChiasmError as error:
            return f"the built-in request was not answered: {error.message}"

    def _check_room(self, prompt: Prompt, books: Books) -> None:
        """Raise ChiasmError where so many blocks have leaked that the sample would find no room.

        The engine counts on what fits an empty pool: it would stop, and not for the sample's sake.
        """
        engine = self._engine
        media = engine.pool.num_blocks - engine.scheduler.max_blocks(prompt)
        tokens = -(-(len(prompt.token_ids) + NUM_TOKENS) // engine.spec.block_size)
        if books.num_unexplained + media + 2 * tokens > books.num_blocks:
            raise ChiasmError("blocks that nobody gives back leave no room for it")

    async def _drift(self, ready: _Sample) -> Drift:
        ways = {}
        with self._service.admission(2), self._service.media(ready.inputs):
            ways[await self._answer(ready, 0)] = "computed anew"
            await self._service.ask(self._forget_half)
            ways[await self._answer(ready, 1)] = "continued within the prompt"
            ways[await self._answer(ready, 2, num_choices=2)] = "from the cache, two at once"
        if self._watcher.failure is not None:
            raise ChiasmError("looking on failed")
        asked = self._watcher.requests.values()
        answers = {
            request: way
            for name, way in ways.items()
            for request in asked
            if request_of(request.request_id) == name
        }
        return self._compared(answers, await self._truths(ready, answers))

    async def _truths(
        self, ready: _Sample, answers: Iterable[Request]
    ) -> dict[tuple[int, ...], Truth]:
        """What the plain path says of each answer, by its tokens."""
        plain = PlainPass(ready.epoch.model, ready.prompt, ready.inputs)
        await self._service.ask(plain.encode)
        truths: dict[tuple[int, ...], Truth] = {}
        wanted = [len(ready.prompt.token_ids) + step - 2 for step in STEPS]
        for sequence in dict.fromkeys(tuple(answer.token_ids[:-1]) for answer in answers):
            once, again = [
                await self._service.ask(functools.partial(plain.logits, sequence, wanted, copies))
                for copies in (1, 2)
            ]
            truths[sequence] = Truth(once, again)
        return truths

    def _compared(
        self, answers: Mapping[Request, str], truths: Mapping[tuple[int, ...], Truth]
    ) -> Drift:
        steps = [
            compared(way, step, self._watcher.rows[request.request_id, step], plain)
            for request, way in answers.items()
            for step, plain in zip(STEPS, truths[tuple(request.token_ids[:-1])].rows, strict=True)
        ]
        noise = max(truth.noise for truth in truths.values())
        largest = max(truth.largest for truth in truths.values())
        eps = torch.finfo(self._engine.model.dtype).eps
        return Drift(noise, limit_of(noise, largest, eps), tuple(steps))

    async def _prepared(self) -> _Sample:
        """The sample with its picture, or about words alone where a picture is too long a step."""
        generation = self._subject.generation
        reading, epoch = generation.current
        family, why = epoch.model.family, ""
        most = max(self._engine.limits.max_num_batched_tokens, _LEAST_STEP_TOKENS)
        for with_picture in (True,) if family.needs_media else (True, False):
            shown = with_picture and "image" in family.modalities
            head, files = sample(self._name, self._subject.images, with_picture=shown)
            try:
                prompt, inputs = await generation.prepared(head, files, reading, epoch)
            except ClientFault as error:  # limits that are too narrow for the picture
                why = error.message
                continue
            length = len(prompt.token_ids) + NUM_TOKENS
            if length <= most:
                return _Sample(epoch, prompt, inputs, head.priority)
            why = f"one pass of its {length} tokens is longer than a step of {most}"
        raise ChiasmError(why)

    async def _answer(self, ready: _Sample, number: int, num_choices: int = 1) -> str:
        """Have the sample answered. Returns what the ids of its requests begin with.

        Raises: ChiasmError when there is no answer.
        """
        name = f"{self._name}-{number}"
        params = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True)
        priority, scope = ready.priority, ready.scope
        running = self._service.generate(
            name, ready.prompt, params, ready.inputs, num_choices, priority, scope
        )
        async with aclosing(running) as batches:
            async for batch in batches:
                if any(progress.failed for progress in batch):
                    raise ChiasmError("the model failed on it")
        return name

    def _forget_half(self) -> None:
        """Leave the prompt's beginning, up to the middle of its picture."""
        for request in self._watcher.requests.values():
            spans, size = request.prompt.spans, request.table.block_size
            middle = (
                (spans[0].start + spans[0].end) // 2 if spans else request.num_prompt_tokens // 2
            )
            forget(self._engine, request, max(1, middle // size))


def forget(engine: Engine, request: Request, first_block: int = 0) -> None:
    """Make what a request of the sample left unfindable: its blocks are free at once.

    Args:
        first_block: K and V of what lies before it are left, and so are its media.
    """
    pool, size = engine.pool, request.table.block_size
    contents = [
        request.chain.content(index, request.token_ids)
        for index in range(first_block, len(request.token_ids) // size)
    ]
    found = [pool.lookup(content.key, content) for content in reversed(contents)]
    if first_block == 0:
        cache, root = engine.media_cache, request.scope.root
        for span in request.prompt.media:
            found += [pool.lookup(c.key, c) for c in cache.contents(root, span.item)]
    pool.uncommit([block_id for block_id in found if block_id is not None])


async def _files_or_why(reading: asyncio.Future[Stored]) -> Stored | str:
    try:
        async with asyncio.timeout(2 * _FILES_SECONDS):
            return await reading
    except TimeoutError:
        return f"the model's files were not read in {2 * _FILES_SECONDS:.0f} s"
    except Exception as error:
        return f"the model's files could not be compared: {type(error).__name__}"
