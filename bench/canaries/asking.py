"""A client that asks at a steady pace, repeats nothing, and counts what became of each request."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
from chiasm_contract.names import CONVERSATION_HEADER
from PIL import Image
from stand_ins.faulty_worker import CLIENTS_MARK

_TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclass
class Counted:
    """What clients saw.

    Attributes:
        lost: not answered with 200, or an answer that was not whole though no byte of it had to be
            shown before its end.
        cut: streams that ended in the middle, behind bytes that the client had already.
        by_revision: whole answers.
        words: some of what was said instead of answers.
    """

    asked: int = 0
    lost: int = 0
    cut: int = 0
    by_revision: dict[str, int] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0

    def fault(self, words: str) -> None:
        """Keep some of the words."""
        if len(self.words) < 5:
            self.words.append(words[:200])


class Client:
    """Every request is a conversation of its own: half text, half pictures, a third streamed."""

    def __init__(self, url: str, model: str, per_second: float) -> None:
        self.counted = Counted()
        self._address = f"{url}/v1/chat/completions"
        self._model = model
        self._per_second = per_second
        data = io.BytesIO()
        Image.new("RGB", (32, 32), "red").save(data, "PNG")
        self._picture = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Counted]:
        """Ask as long as the context lasts; at its end every answer has ended."""
        # A connection for each: Kubernetes chooses the pod by connection, and all are to be asked.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
            pending: set[asyncio.Task[None]] = set()
            pace = asyncio.create_task(self._keep_asking(session, pending))
            try:
                yield self.counted
            finally:
                pace.cancel()
                with suppress(asyncio.CancelledError):
                    await pace
                await asyncio.gather(*pending)

    async def _keep_asking(
        self, session: aiohttp.ClientSession, pending: set[asyncio.Task[None]]
    ) -> None:
        number = 0
        while True:
            task = asyncio.create_task(self._ask(session, number))
            pending.add(task)
            task.add_done_callback(pending.discard)
            number += 1
            await asyncio.sleep(1 / self._per_second)

    async def _ask(self, session: aiohttp.ClientSession, number: int) -> None:
        counted, streamed = self.counted, number % 3 == 0
        counted.asked += 1
        began, received = time.monotonic(), b""
        try:
            async with session.post(self._address, json=self._body(number, streamed)) as response:
                async for data in response.content.iter_any():
                    received += data
                whole = _is_whole(received, streamed)
                revision = response.headers.get(CONVERSATION_HEADER, "@").rpartition("@")[2]
                if response.status != 200 or not (whole or streamed):
                    counted.lost += 1
                    counted.fault(f"{response.status}: {received.decode(errors='replace')}")
                    return
                if not whole:
                    raise aiohttp.ClientPayloadError("the stream has no end")
        except (aiohttp.ClientError, TimeoutError) as error:
            counted.fault(f"{type(error).__name__}: {error}")
            if streamed and received:
                counted.cut += 1
            else:
                counted.lost += 1
            return
        counted.by_revision[revision] = counted.by_revision.get(revision, 0) + 1
        counted.slowest_seconds = max(counted.slowest_seconds, time.monotonic() - began)

    def _body(self, number: int, streamed: bool) -> dict[str, object]:
        text = {"type": "text", "text": f"What is it, {CLIENTS_MARK}? Number {number}."}
        picture = {"type": "image_url", "image_url": {"url": self._picture}}
        content = [picture, text] if number % 2 else [text]
        messages = [{"role": "user", "content": content}]
        return {
            "model": self._model, "messages": messages, "temperature": 0, "max_tokens": 16,
            "stream": streamed,
        }  # fmt: skip


def _is_whole(received: bytes, streamed: bool) -> bool:
    if streamed:
        return b"data: [DONE]" in received and b'"error"' not in received
    try:
        return bool(json.loads(received)["choices"][0]["message"]["content"])
    except (ValueError, KeyError, IndexError):
        return False
