"""One tier behind one sidecar, and what can be done to it from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.blocks import Block
from faults.replica import Replica
from faults.sidecar import Sidecar, namespace
from faults.valkey import Shared
from faults.worker import End, WorkerEnd

_LIMIT_SECONDS = 60.0


@dataclass
class Stage:
    """One tier behind one sidecar, guarded or not, and who asks it."""

    tier: str
    sidecar: Sidecar
    end: WorkerEnd
    valkey: Shared
    key_prefix: str
    replica: Replica | None = None

    def _path(self, key: bytes) -> Path:
        return self.sidecar.folder / "blocks" / namespace().name / key.hex()[:2] / key.hex()

    def _name(self, key: bytes) -> str:
        return f"{self.key_prefix}:kv:{namespace().name}:{key.hex()}"

    async def keep(self, blocks: Sequence[Block]) -> None:
        """Have the records of these kept, as a worker that computed them has."""
        if self.replica is not None:
            self.sidecar.tell("calm")
            for block in blocks:
                self.replica.tell("put", key=block.key.hex(), record=block.record().hex())
            return
        await self.end.store([b.key for b in blocks], [b.record() for b in blocks])
        deadline = time.monotonic() + _LIMIT_SECONDS
        for block in blocks:
            while not self.is_there(block.key):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.tier} did not keep a record")
                await asyncio.sleep(0.002)

    def is_there(self, key: bytes) -> bool:
        """Whether the tier holds something under a key; memory is not looked into."""
        if self.tier == "disk":
            return self._path(key).exists()
        return self.tier == "host" or bool(self.valkey.client.exists(self._name(key)))

    def place(self, key: bytes, data: bytes) -> None:
        """Put bytes where the tier keeps the record of a key."""
        if self.replica is not None:
            self.replica.tell("write", key=key.hex(), record=data.hex())
        elif self.tier == "host":
            self.write_first(key, data)
        elif self.tier == "disk":
            self._path(key).write_bytes(data)
        else:
            self.valkey.client.set(self._name(key), data)

    def write_first(self, key: bytes, data: bytes) -> None:
        """Have the tier keep bytes under a key of which it has nothing, whatever they are."""
        self.sidecar.tell("put", tier=self.tier, key=key.hex(), record=data.hex())

    async def ask(self, blocks: Sequence[Block]) -> list[End]:
        """What becomes of asking for them."""
        if self.replica is not None:  # What was found before would be found nearer.
            self.sidecar.tell("forget", keys=[block.key.hex() for block in blocks])
        fetched = await self.end.fetch([block.key for block in blocks])
        ends = [self.end.take(block, fetched) for block in blocks]
        if fetched is not None:
            self.end.client.release(fetched)
        return ends


def first_wrong(blocks: Sequence[Block], asked: Sequence[Sequence[End]]) -> list[End]:
    """How asking several times ended for each block: the first wrong bytes, else every step."""
    ends = []
    for block, *steps in zip(blocks, *asked, strict=True):
        wrong = [each for each in steps if each.payload not in (None, block.payload)]
        words = ["right" if each.payload else each.words for each in steps]
        told = [word for at, word in enumerate(words) if at == 0 or words[at - 1] != word]
        ends.append(wrong[0] if wrong else End(", then ".join(told)))
    return ends


Flow = Callable[[Stage, Sequence[Block], Sequence[Block]], Awaitable[list[End]]]
# Kind -> rows of the survey, what happens, and which block's vectors would be right to use.
Kinds = dict[str, tuple[str, Flow, Callable[[Block], Block]]]


def same(block: Block) -> Block:
    """What is asked for is right."""
    return block
