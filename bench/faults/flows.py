"""Faults that take more than wrong bytes under a key: something happens between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from chiasm_worker.tiers.engine_side import EngineSide
from chiasm_worker.tiers.link import Fetched
from chiasm_worker.tiers.restore import Restoring

from faults.blocks import Block
from faults.stage import Kinds, Stage, same
from faults.worker import End


async def killed_writer(stage: Stage, blocks: Sequence[Block], _: Sequence[Block]) -> list[End]:
    """A record is handed over of which half was written."""
    halves = [block.record()[:600].ljust(len(block.record()), b"\0") for block in blocks]
    whole_ends = [
        half[:-64] + block.record()[-64:] for half, block in zip(halves, blocks, strict=True)
    ]
    await stage.end.store([block.key for block in blocks], whole_ends)
    await asyncio.sleep(0.05)
    return await stage.ask(blocks)


async def slot_used_again(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block]
) -> list[End]:
    """The slots of an answer are filled for another one before it is read."""
    await stage.keep([*blocks, *others])
    fetched = await stage.end.fetch([block.key for block in blocks])
    assert fetched is not None
    stage.end.client.release(fetched)
    later: list[Fetched] = []
    slots = set(fetched.slots)
    while slots & set(fetched.slots) and len(later) < 200:  # round the ring of free slots
        again = await stage.end.fetch([block.key for block in others])
        assert again is not None
        later.append(again)
        slots -= set(again.slots)
        stage.end.client.release(again)
    return [stage.end.take(block, fetched) for block in blocks]


async def slot_overwritten(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block]
) -> list[End]:
    """The slot changes while its payload is being copied."""
    await stage.keep(blocks)
    fetched = await stage.end.fetch([block.key for block in blocks])
    assert fetched is not None
    ends = []
    for block, other in zip(blocks, others, strict=True):
        slot = fetched.staging.record(fetched.found[block.key].slot)

        def overwrite(slot: memoryview = slot, record: bytes = other.record()) -> None:
            slot[: len(record)] = record

        stage.end.memory.meanwhile = overwrite
        ends.append(stage.end.take(block, fetched))
    stage.end.memory.meanwhile = lambda: None
    stage.end.client.release(fetched)
    return ends


async def reloaded_while_asking(
    stage: Stage, blocks: Sequence[Block], _: Sequence[Block]
) -> list[End]:
    """Other weights come while a question is open; unguarded, its answer is taken for theirs."""
    await stage.keep(blocks)
    stage.sidecar.tell("hold")
    asking = asyncio.create_task(stage.end.fetch([block.key for block in blocks]))
    await asyncio.sleep(0.05)
    if stage.end.is_guarded:  # What EngineService.swap does.
        stage.end.link.engine_gen += 1
        await stage.end.client.stop()
    stage.sidecar.tell("free")
    fetched = await asking
    ends = [stage.end.take(block, fetched) for block in blocks]
    if stage.end.is_guarded:
        stage.end.link.engine_gen -= 1
        await stage.end.connect()
    elif fetched is not None:
        stage.end.client.release(fetched)
    return ends


async def reloaded_before_use(
    stage: Stage, blocks: Sequence[Block], _: Sequence[Block]
) -> list[End]:
    """Other weights come between an answer and its use."""
    await stage.keep(blocks)
    fetched = await stage.end.fetch([block.key for block in blocks])
    assert fetched is not None
    if not stage.end.is_guarded:
        ends = [stage.end.take(block, fetched) for block in blocks]
    else:
        end, nothing = stage.end, cast("Any", None)
        end.link.engine_gen += 1
        restoring = Restoring(EngineSide(end.pool, nothing, end.memory, end.namespace, end.link))
        taken = restoring.restore(nothing, nothing, fetched)
        end.link.engine_gen -= 1
        ends = [
            End("used", b"") if block.key in taken else End("reject(generation) by the worker")
            for block in blocks
        ]
    stage.end.client.release(fetched)
    return ends


async def sidecar_killed_while_writing(
    stage: Stage, blocks: Sequence[Block], _: Sequence[Block]
) -> list[End]:
    """The process ends when the first record is written; its successor is asked for all."""
    before = stage.end.link.staging
    stage.end.send([block.key for block in blocks], [block.record() for block in blocks])
    while not any(stage.is_there(block.key) for block in blocks):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.to_thread(stage.sidecar.restart)
    await stage.end.connected(other_than=before)
    await asyncio.sleep(0.2)  # It looks first through what is in the folder.
    return await stage.ask(blocks)


async def sidecar_restarted_before_use(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block]
) -> list[End]:
    """The process that gave the answer has gone, and its successor fills slots of its own."""
    await stage.keep([*blocks, *others])
    fetched = await stage.end.fetch([block.key for block in blocks])
    before = stage.end.link.staging
    await asyncio.to_thread(stage.sidecar.restart)
    await stage.end.connected(other_than=before)
    await stage.ask(others)
    return [stage.end.take(block, fetched) for block in blocks]


def _after_reload(block: Block) -> Block:
    return block.with_fields(compute__weights__language="f" * 64)


FLOWS: Kinds = {
    "worker killed while writing": ("33 35", killed_writer, same),
    "slot used again before it is read": ("31 32", slot_used_again, same),
    "slot overwritten while it is read": ("33 35", slot_overwritten, same),
    "reload while a question is open": ("3 4 5 8", reloaded_while_asking, _after_reload),
    "reload between answer and use": ("3 4 5 8", reloaded_before_use, _after_reload),
    "sidecar killed while writing": ("40", sidecar_killed_while_writing, same),
    "sidecar restarted before use": ("40 41", sidecar_restarted_before_use, same),
}
