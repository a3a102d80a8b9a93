"""Another replica's memory: what changes there between look-up and read, and while it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from faults.blocks import DONORS, Block
from faults.replica import Replica
from faults.stage import Kinds, Stage, same
from faults.worker import End


def _replica(stage: Stage) -> Replica:
    assert stage.replica is not None
    return stage.replica


def _put(replica: Replica, blocks: Sequence[Block]) -> None:
    for block in blocks:
        replica.tell("put", key=block.key.hex(), record=block.record().hex())


Asking = list[asyncio.Task[list[End]]]


async def _looked_up(stage: Stage, blocks: Sequence[Block]) -> Asking:
    """Questions that know where their records lie, and have not read them yet."""
    stage.sidecar.tell("hold reads")
    asking = [asyncio.create_task(stage.ask([block])) for block in blocks]
    await asyncio.sleep(0)
    await asyncio.to_thread(stage.sidecar.tell, "await reads", count=len(blocks))
    return asking


async def _read(stage: Stage, asking: Asking) -> list[End]:
    stage.sidecar.tell("free reads")
    return [end for ends in await asyncio.gather(*asking) for end in ends]


async def used_again(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
    """The slots hold other records when they are read."""
    await stage.keep(blocks)
    asking = await _looked_up(stage, blocks)
    for block, other in zip(blocks, others, strict=True):
        _replica(stage).tell("drop", key=block.key.hex())
        _put(_replica(stage), [other])
    return await _read(stage, asking)


async def restarted(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
    """Another process answers under the address, with other records in the same places."""
    replica = _replica(stage)
    await asyncio.to_thread(replica.restart)  # So that the first slots are the first to be used.
    await asyncio.to_thread(stage.sidecar.tell, "meet", key=blocks[0].key.hex())
    await stage.keep(blocks)
    asking = await _looked_up(stage, blocks)
    await asyncio.to_thread(replica.restart)
    _put(replica, others)
    await asyncio.to_thread(stage.sidecar.tell, "meet", key=others[0].key.hex())
    return await _read(stage, asking)


async def rewritten(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
    """The slots change while they are read, and nothing in them says so."""
    await stage.keep(blocks)
    ends = []
    for block, other in zip(blocks, others, strict=True):
        records = {"record": block.record().hex(), "other": other.record().hex()}
        _replica(stage).tell("rewrite", key=block.key.hex(), **records)
        ends += await stage.ask([block])
        _replica(stage).tell("stop")
    return ends


async def misled(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block], donor: str
) -> list[End]:
    """The replica names slots that hold records of something else."""
    await stage.keep(blocks)
    for block, other in zip(blocks, others, strict=True):
        foreign = DONORS[donor][1](other)
        _put(_replica(stage), [foreign])
        _replica(stage).tell("mislead", key=block.key.hex(), other=foreign.key.hex())
    return await stage.ask(blocks)


def _misled(donor: str) -> Kinds:
    async def flow(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
        return await misled(stage, blocks, others, donor)

    return {f"replica answers with {donor}": ("12 14 32", flow, same)}


PEERS: Kinds = {
    "replica's slot used again": ("31 32", used_again, same),
    "replica restarted under its address": ("40 41", restarted, same),
    "replica rewrites what is read": ("33 35", rewritten, same),
    **_misled("other tenant"),
    **_misled("byte-equal layout"),
    **_misled("other weights"),
}
