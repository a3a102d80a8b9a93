"""From a decoded request body to a stream of events: the worker's one use case.

Media are decoded and processed, and the prompt is built, in a small thread pool, so that
neither the event loop nor the engine's thread waits for them.

Must not know: HTTP.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import torch
from chiasm_contract.config import MediaLimits, VisionConfig
from chiasm_contract.errors import ChiasmError
from chiasm_contract.messages import (
    ChosenLogprob,
    ErrorEvent,
    FinishEvent,
    GenerateHead,
    MediaFiles,
    TokenEvent,
    Usage,
)

from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.epoch import Epoch
from chiasm_worker.engine.progress import Progress, RequestUsage
from chiasm_worker.engine.service import EngineService
from chiasm_worker.modality.request_media import MediaReader
from chiasm_worker.modality.shared_media import FileInputs, MediaInputs
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.prompt import PromptBuilder
from chiasm_worker.request import FinishReason, Prompt
from chiasm_worker.sampling import sampling_params
from chiasm_worker.timeline.notes import UNNOTED, Notes
from chiasm_worker.token_texts import TokenTexts

Event = TokenEvent | FinishEvent | ErrorEvent
_NUM_THREADS = 2


class Reading:
    """How one model reads requests: its processor, its template and its tokenizer.

    Raises: ValueError when the model's folder lacks what that takes.
    """

    def __init__(self, limits: MediaLimits, vision: VisionConfig, model: LoadedModel) -> None:
        self.media = MediaReader(model, limits, vision)
        self.prompts = PromptBuilder(model)
        self.tokens = TokenTexts(model.processor.tokenizer)

    def prepare(
        self,
        head: GenerateHead,
        files: MediaFiles,
        engine: Engine,
        epoch: Epoch,
        notes: Notes = UNNOTED,
    ) -> tuple[Prompt, list[MediaInputs]]:
        """A request's prompt, and what the encoder takes of its media."""
        items, inputs = self.media.read(head.media_parts(), files, head.scope_fp, notes)
        with notes.phase("prompt"):
            prompt = self.prompts.build(head.messages, items)
        if any(isinstance(each, FileInputs) for each in inputs):
            # What was seen before is made anew only where it has to be, and then better here than
            # by the engine's thread, which others wait for.
            to_encode = engine.to_encode(prompt, epoch.scope(head.scope_fp))
            wanted = zip(to_encode, inputs, strict=True)
            with notes.phase("process"):
                inputs = [self.media.ready(each) if needed else each for needed, each in wanted]
        return prompt, inputs


class Generation:
    """Turns requests into events on one engine."""

    def __init__(self, reading: Reading, service: EngineService) -> None:
        self._service = service
        self._current = (reading, service.engine.epoch)
        self._threads = ThreadPoolExecutor(
            _NUM_THREADS, "media", initializer=torch.set_num_threads, initargs=(1,)
        )

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def reading(self) -> Reading:
        """How new requests are read."""
        return self._current[0]

    @property
    def current(self) -> tuple[Reading, Epoch]:
        """How new requests are read, and what computes them."""
        return self._current

    def use(self, reading: Reading, epoch: Epoch) -> None:
        """Read new requests as another model does, and have it compute them."""
        self._current = (reading, epoch)

    def events(self, head: GenerateHead, files: MediaFiles) -> AsyncGenerator[list[Event]]:
        """Batches of events; the last event brings the usage or is an ErrorEvent.

        The model that new requests are read by when this is called also answers, whatever is
        swapped meanwhile.

        Raises: ClientFault before the first batch when the request is at fault.
        """
        return self._events(head, files, *self._current)

    async def prepared(
        self, head: GenerateHead, files: MediaFiles, reading: Reading, epoch: Epoch
    ) -> tuple[Prompt, list[MediaInputs]]:
        """A request's prompt and what the encoder takes of its media.

        Raises: ClientFault when the request is at fault.
        """
        engine = self._service.engine
        notes = engine.timeline.notes(head.request_id)
        reading.media.check(head.media_parts(), files)
        reading.prompts.check_length(head.messages, engine.limits.max_model_len)
        loop = asyncio.get_running_loop()
        prepare = functools.partial(reading.prepare, head, files, engine, epoch, notes)
        # In a copy of the context: what the thread logs is of this request.
        return await loop.run_in_executor(self._threads, contextvars.copy_context().run, prepare)

    async def _events(
        self, head: GenerateHead, files: MediaFiles, reading: Reading, epoch: Epoch
    ) -> AsyncGenerator[list[Event]]:
        sampling = head.sampling
        with self._service.admission(sampling.n):
            engine = self._service.engine
            prompt, inputs = await self.prepared(head, files, reading, epoch)
            del files  # What is still needed of them, the inputs hold.
            # Without room for one token, asking for one is what says so.
            room = max(1, engine.room(prompt))
            params = sampling_params(sampling, room, epoch.model.decoder.spec.vocab_size)
            events = Events(reading.tokens, sampling.n, sampling.logprobs is not None)
            with self._service.media(inputs):
                # Closed here and now when the caller leaves: that is what aborts the request.
                running = self._service.generate(
                    head.request_id,
                    prompt,
                    params,
                    inputs,
                    sampling.n,
                    head.priority,
                    epoch.scope(head.scope_fp),
                )
                async with aclosing(running) as batches:
                    async for batch in batches:
                        yield events.of(batch)


class Events:
    """One request's progress as events; adds up what its choices used."""

    def __init__(self, tokens: TokenTexts, num_choices: int, logprobs: bool) -> None:
        self._tokens = tokens
        self._num_open = num_choices
        self._logprobs = logprobs
        self._num_output_tokens = 0
        self._prompt: RequestUsage | None = None

    def of(self, batch: Sequence[Progress]) -> list[Event]:
        """The events of a batch of progress; what comes behind a failure is left out."""
        events: list[Event] = []
        for progress in batch:
            if progress.failed or progress.token_id is None:
                error = ChiasmError("The model failed on this request; its answer is incomplete.")
                return [*events, ErrorEvent(error=error.body())]
            events += self._of(progress, progress.token_id)
        return events

    def _of(self, progress: Progress, token_id: int) -> list[Event]:
        events: list[Event] = [
            TokenEvent(
                index=progress.choice,
                text=progress.text,
                token_ids=(token_id,),
                logprobs=self._shown(progress) if self._logprobs else None,
            )
        ]
        if progress.usage is not None:
            events.append(self._finish(progress, progress.usage))
        return events

    def _shown(self, progress: Progress) -> tuple[ChosenLogprob, ...]:
        return tuple(
            self._tokens.chosen(token.token_id, token.logprobs)
            for token in progress.shown
            if token.logprobs is not None
        )

    def _finish(self, progress: Progress, used: RequestUsage) -> FinishEvent:
        self._num_open -= 1
        self._num_output_tokens += used.num_output_tokens
        if progress.choice == 0:  # The later choices found its prompt in the cache.
            self._prompt = used
        usage = None
        if not self._num_open:
            prompt = self._prompt or used
            usage = Usage(
                prompt_tokens=prompt.num_prompt_tokens,
                completion_tokens=self._num_output_tokens,
                cached_tokens=prompt.num_cached_tokens,
                image_tokens=prompt.num_media_tokens["image"],
                video_tokens=prompt.num_media_tokens["video"],
                audio_tokens=prompt.num_media_tokens["audio"],
                uncompressed_image_tokens=prompt.num_uncompressed_image_tokens,
                image_compression=prompt.image_compression,
            )
        return FinishEvent(
            index=progress.choice,
            reason="stop" if progress.finish_reason is FinishReason.STOP else "length",
            stop_reason=progress.stop_reason,
            usage=usage,
        )
