"""Contestant: this project's worker, from picture files to answers, without its HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_contract.messages import (
    ChatMessage,
    GenerateHead,
    ImagePart,
    MediaFiles,
    TextPart,
)
from chiasm_contract.sampling import Sampling
from chiasm_worker.generation import Generation
from chiasm_worker.main import loading
from chiasm_worker.serving import WorkerState
from protocol import Answer, Question, serve


def contestant(folder: str, num_threads: int) -> Answer:
    """The worker on `folder`, in bfloat16."""
    config = WorkerConfig(
        model_id="peer",
        model_path=Path(folder),
        dtype="bfloat16",
        num_threads=num_threads,
        engine=EngineLimits(max_num_batched_tokens=2048),
    )
    loop = asyncio.new_event_loop()

    state, running = WorkerState(config), AsyncExitStack()

    async def start() -> Generation:
        await running.enter_async_context(loading(state))
        while state.serving is None:
            if state.load_failure is not None:
                raise RuntimeError(state.load_failure)
            await asyncio.sleep(0.05)
        return state.serving.generation

    generation = loop.run_until_complete(start())

    async def ask(words: str, picture: bytes, max_tokens: int) -> int:
        content = (ImagePart(index=0), TextPart(text=words))
        head = GenerateHead(
            request_id="peer",
            messages=(ChatMessage(role="user", content=content),),
            sampling=Sampling(temperature=0, max_tokens=max_tokens),
        )
        num_tokens = 0
        async for events in generation.events(head, MediaFiles(images=(picture,))):
            num_tokens += sum(len(e.token_ids) for e in events if e.type == "token")
        return num_tokens

    async def ask_all(asked: Sequence[tuple[str, bytes]], max_tokens: int) -> int:
        return sum(await asyncio.gather(*(ask(*one, max_tokens) for one in asked)))

    def answer(questions: Sequence[Question], max_tokens: int) -> int:
        asked = [(q.words, Path(q.picture).read_bytes()) for q in questions]
        assert running is not None  # the worker lives as long as its context
        return loop.run_until_complete(ask_all(asked, max_tokens))

    return answer


if __name__ == "__main__":
    serve(contestant)
