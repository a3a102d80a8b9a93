"""Who writes besides the worker that asks: one that it has replaced, and whoever came first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from faults.blocks import PAYLOAD_BYTES, Block
from faults.sidecar import INCARNATION
from faults.stage import Kinds, Stage, first_wrong, same
from faults.worker import End, WorkerEnd

_SUCCESSOR = "the one after"


@asynccontextmanager
async def _succeeded(stage: Stage) -> AsyncIterator[WorkerEnd]:
    """A worker with another incarnation takes the place of the stage's own, which goes on."""
    stage.sidecar.tell("admit", incarnation=_SUCCESSOR)
    successor = WorkerEnd(stage.end.socket_path, _SUCCESSOR, stage.end.is_guarded)
    await successor.connect()
    try:
        yield successor
    finally:
        await successor.client.stop()
        stage.sidecar.tell("admit", incarnation=INCARNATION)
        await stage.end.client.stop()
        await stage.end.connect()


async def _asked(end: WorkerEnd, blocks: Sequence[Block]) -> list[End]:
    fetched = await end.fetch([block.key for block in blocks])
    ends = [end.take(block, fetched) for block in blocks]
    if fetched is not None:
        end.client.release(fetched)
    return ends


async def replaced_offers(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block]
) -> list[End]:
    """The older worker offers whole records around other vectors; nothing tells them but who."""
    wrong = [
        block.record(payload=other.payload) for block, other in zip(blocks, others, strict=True)
    ]
    keys = [block.key for block in blocks]
    stage.sidecar.tell("admit", incarnation=_SUCCESSOR)
    stage.end.send(keys, wrong)
    async with _succeeded(stage) as successor:
        for _ in range(5):
            await asyncio.sleep(0.05)
            if stage.end.link.staging is not None and stage.end.link.staging.num_free >= len(keys):
                stage.end.send(keys, wrong)
        asked = [await _asked(successor, blocks)]
        await successor.store(keys, [block.record() for block in blocks])
        asked.append(await _until_kept(stage, successor, blocks))
    return first_wrong(blocks, asked)


async def _until_kept(stage: Stage, end: WorkerEnd, blocks: Sequence[Block]) -> list[End]:
    while not all(stage.is_there(block.key) for block in blocks):  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    return await _asked(end, blocks)


async def replaced_writes(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block]
) -> list[End]:
    """The older worker fills the slots that it once had; unguarded, they are its successor's."""
    await stage.keep(blocks)
    older = stage.end.link.staging
    assert older is not None
    async with _succeeded(stage) as successor:
        fetched = await successor.fetch([block.key for block in blocks])
        assert fetched is not None
        written = older if stage.end.is_guarded else fetched.staging
        for block, other in zip(blocks, others, strict=True):
            record = other.record()
            written.record(fetched.found[block.key].slot)[: len(record)] = record
        ends = [successor.take(block, fetched) for block in blocks]
        successor.client.release(fetched)
    return ends


def _first_came(name: str) -> Kinds:
    async def flow(stage: Stage, blocks: Sequence[Block], _: Sequence[Block]) -> list[End]:
        """Another engine's record lies there first; ours is computed, offered and asked for."""
        for block in blocks:
            stage.write_first(block.key, _foreign_record(name, block))
        asked = [await stage.ask(blocks)]
        for _turn in range(3):  # Two contents under one key take each other out.
            await stage.end.store([b.key for b in blocks], [b.record() for b in blocks])
            await asyncio.sleep(0.1)
            asked.append(await stage.ask(blocks))
        return first_wrong(blocks, asked)

    return {f"first writer with {name}": ("10 12 13", flow, same)}


def _foreign_record(name: str, block: Block) -> bytes:
    match name:
        case "another layout":
            other = block.with_fields(repr__layout="head-major")
            return other.record(payload=other.payload, key=block.key)
        case "a smaller size":
            return block.record(payload=block.payload[::-1][: PAYLOAD_BYTES // 2])
        case _:
            return block.record(payload=block.payload[::-1] * 2)


WRITERS: Kinds = {
    "replaced worker still offers": ("31 40 41", replaced_offers, same),
    "replaced worker still writes slots": ("31 40 41", replaced_writes, same),
    **_first_came("another layout"),
    **_first_came("a smaller size"),
    **_first_came("a larger size"),
}
