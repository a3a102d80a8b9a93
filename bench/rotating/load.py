"""Clients with an API key that ask without a pause and repeat nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from chiasm_tour import asking

_TIMEOUT = aiohttp.ClientTimeout(total=120)
_WORDS = ("red", "green", "blue", "circle", "square", "left", "right", "top", "how", "many", "what")


@dataclass
class Asked:
    """What clients saw; `lost` is every answer other than 200, and every one that did not come."""

    requests: int = 0
    lost: int = 0
    words: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0

    def lose(self, why: str) -> None:
        """One more, and some of the words."""
        self.lost += 1
        if len(self.words) < 5:
            self.words.append(why[:200])


@dataclass
class Clients:
    """`key` may be changed at any time; the next request uses it."""

    url: str
    model: str
    key: str
    asked: Asked = field(default_factory=Asked)

    @asynccontextmanager
    async def asking(self, num_clients: int) -> AsyncIterator[Asked]:
        """Ask while the block runs; each request that was begun is ended."""
        over = asyncio.Event()
        connector = aiohttp.TCPConnector(force_close=True)  # a Service divides connections
        async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as http:
            tasks = [
                asyncio.create_task(self._ask_on(http, over, random.Random(seed)))
                for seed in range(num_clients)
            ]
            try:
                yield self.asked
            finally:
                over.set()
                await asyncio.gather(*tasks)

    async def _ask_on(
        self, http: aiohttp.ClientSession, over: asyncio.Event, chance: random.Random
    ) -> None:
        pictures = [asking.data_url(each.image) for each in asking.sample_questions(3)]
        while not over.is_set():
            await self._ask(http, chance, chance.choice(pictures))
            await asyncio.sleep(0.1)

    async def _ask(self, http: aiohttp.ClientSession, chance: random.Random, picture: str) -> None:
        text = " ".join(chance.choice(_WORDS) for _ in range(24))
        parts = [
            {"type": "image_url", "image_url": {"url": picture}},
            {"type": "text", "text": text},
        ]
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": parts}],
            "max_tokens": 4,
        }
        headers = {"authorization": f"Bearer {self.key}"}
        began = asyncio.get_running_loop().time()
        self.asked.requests += 1
        try:
            address = f"{self.url}/v1/chat/completions"
            async with http.post(address, json=body, headers=headers) as answer:
                said = await answer.text()
                if answer.status != 200:
                    self.asked.lose(f"{answer.status} {said}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.asked.lose(repr(error))
        took = asyncio.get_running_loop().time() - began
        self.asked.slowest_seconds = max(self.asked.slowest_seconds, took)
