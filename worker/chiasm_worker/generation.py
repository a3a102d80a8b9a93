"""From a decoded request body to a stream of events: the worker's one use case.

Media are decoded and processed, and the prompt is built, in a small thread pool, so that
neither the event loop nor the engine's thread waits for them.

Must not know: HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

from chiasm_contract.config import MediaLimits, VisionConfig
from chiasm_contract.errors import ChiasmError
from chiasm_contract.messages import (
    ChosenLogprob,
    ErrorEvent,
    FinishEvent,
    GenerateHead,
    MediaFiles,
    TokenEvent,
    TokenLogprob,
    Usage,
)

from chiasm_worker.engine.engine import Progress
from chiasm_worker.engine.runner import EncoderInputs
from chiasm_worker.engine.sampler import TopLogprobs
from chiasm_worker.engine.service import EngineService
from chiasm_worker.modality.request_media import MediaReader
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.prompt import PromptBuilder
from chiasm_worker.request import FinishReason, Prompt, SamplingParams

Event = TokenEvent | FinishEvent | ErrorEvent
_NUM_THREADS = 2


class Generation:
    """Turns requests into events on one engine."""

    def __init__(
        self, limits: MediaLimits, vision: VisionConfig, model: LoadedModel, service: EngineService
    ) -> None:
        self._service = service
        self._media = MediaReader(model, limits, vision)
        self._prompts = PromptBuilder(model)
        self._tokens = TokenTexts(model.processor.tokenizer)
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="media")

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def events(self, head: GenerateHead, files: MediaFiles) -> AsyncGenerator[list[Event]]:
        """Batches of events; the last event is a FinishEvent or an ErrorEvent.

        Raises: ClientFault before the first batch when the request is at fault.
        """
        with self._service.admission():
            self._media.check(head.media_parts(), files)
            loop = asyncio.get_running_loop()
            prompt, inputs = await loop.run_in_executor(self._threads, self._prepare, head, files)
            del files  # They would else stay in memory until the answer ends.
            params = self._params(head, prompt)
            # Closed here and now when the caller leaves: that is what aborts the request.
            running = self._service.generate(head.request_id, prompt, params, inputs)
            async with aclosing(running) as batches:
                async for batch in batches:
                    yield [event for progress in batch for event in self._events(progress)]

    def _prepare(self, head: GenerateHead, files: MediaFiles) -> tuple[Prompt, list[EncoderInputs]]:
        placed = self._media.read(head.media_parts(), files)
        return self._prompts.build(head.messages, placed), [item.inputs for item in placed]

    def _params(self, head: GenerateHead, prompt: Prompt) -> SamplingParams:
        sampling = head.sampling
        return SamplingParams(
            # Without room for one token, asking for one is what says so.
            max_tokens=sampling.max_tokens or max(1, self._service.engine.room(prompt)),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            stop=sampling.stop,
            num_logprobs=sampling.logprobs,
        )

    def _events(self, progress: Progress) -> list[Event]:
        if progress.failed or progress.token_id is None:
            error = ChiasmError("The model failed on this request; its answer is incomplete.")
            return [ErrorEvent(error=error.body())]
        logprobs = progress.logprobs
        chosen = self._tokens.chosen(progress.token_id, logprobs) if logprobs else None
        events: list[Event] = [
            TokenEvent(
                text=progress.text,
                token_ids=(progress.token_id,),
                logprobs=None if chosen is None else (chosen,),
            )
        ]
        if progress.usage is not None:
            usage = progress.usage
            events.append(
                FinishEvent(
                    reason="stop" if progress.finish_reason is FinishReason.STOP else "length",
                    usage=Usage(
                        prompt_tokens=usage.num_prompt_tokens,
                        completion_tokens=usage.num_output_tokens,
                        cached_tokens=usage.num_cached_tokens,
                        image_tokens=usage.num_media_tokens["image"],
                        video_tokens=usage.num_media_tokens["video"],
                        audio_tokens=usage.num_media_tokens["audio"],
                        uncompressed_image_tokens=usage.num_uncompressed_image_tokens,
                        image_compression=usage.image_compression,
                    ),
                )
            )
        return events


class TokenTexts:
    """What single tokens spell, for log probabilities."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def chosen(self, token_id: int, logprobs: TopLogprobs) -> ChosenLogprob:
        """The chosen token beside its alternatives."""
        top = tuple(
            self._token(top_id, value)
            for top_id, value in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True)
        )
        token = self._token(token_id, logprobs.logprob)
        return ChosenLogprob(**token.model_dump(), top=top)

    def _token(self, token_id: int, logprob: float) -> TokenLogprob:
        data = token_bytes(self._tokenizer, token_id)
        return TokenLogprob(
            token=data.decode(errors="replace"), token_bytes=tuple(data), logprob=logprob
        )


def token_bytes(tokenizer: Any, token_id: int) -> bytes:
    """The bytes that a token adds to the answer's text, half characters included."""
    word: str | None = tokenizer.convert_ids_to_tokens(token_id)
    if word is None:  # Models may have more rows than their tokenizer has tokens.
        return b""
    if token_id in tokenizer.added_tokens_decoder:
        return word.encode()
    if len(word) == 6 and word.startswith("<0x") and word.endswith(">"):
        return bytes.fromhex(word[3:5])
    if tokenizer.backend_tokenizer.decode([token_id]).find("\ufffd") >= 0:
        # A byte-level token that holds a part of a character.
        return bytes(_BYTE_LEVEL[symbol] for symbol in word if symbol in _BYTE_LEVEL)
    text: str = tokenizer.backend_tokenizer.decode([token_id])
    # Metaspace decoders drop the space in front of a first word.
    return (" " + text if word.startswith("▁") and not text.startswith(" ") else text).encode()


def _byte_level() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


_BYTE_LEVEL = _byte_level()
