"""A Valkey that goes and comes back while it is read and written: as it was, empty, or older.

What lies under the keys is what a fault of before had left there, so that there is something to
serve wrongly: records of other weights. An engine reads, computes, offers its own, and reads again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from faults.blocks import DONORS, Block
from faults.stage import Kinds, Stage, first_wrong, same
from faults.worker import End

_LIMIT_SECONDS = 60.0
_UNAVAILABLE = ("unavailable",)


async def _answered(stage: Stage, blocks: Sequence[Block]) -> list[list[End]]:
    """Ask until the tier can be asked; every answer."""
    asked = []
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        asked.append(await stage.ask(blocks))
        if not any(end.words in _UNAVAILABLE for end in asked[-1]):
            return asked
        await asyncio.sleep(0.05)
    raise RuntimeError("Valkey did not come back")


async def _recomputed(stage: Stage, blocks: Sequence[Block]) -> list[list[End]]:
    """Offer what computing gives, as often as it takes, and ask again."""
    asked = []
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        await stage.end.store([b.key for b in blocks], [b.record() for b in blocks])
        asked += await _answered(stage, blocks)
        if all(end.payload for end in asked[-1]):
            return asked
        await asyncio.sleep(0.05)
    raise RuntimeError("Valkey does not keep what is offered")


def _foreign(stage: Stage, blocks: Sequence[Block]) -> None:
    for block in blocks:
        stage.write_first(block.key, DONORS["other weights"][1](block).record())


async def _restarted(
    stage: Stage, blocks: Sequence[Block], others: Sequence[Block], snapshot: bytes | None
) -> list[list[End]]:
    """Restart the server while some blocks are read and others written; what the reads ended as."""
    reading = asyncio.create_task(stage.ask(blocks))
    stage.end.send([b.key for b in others], [b.record() for b in others])
    await asyncio.sleep(0)
    await asyncio.to_thread(stage.valkey.restart, snapshot)
    return [await reading, *await _answered(stage, blocks)]


async def restarted(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
    """It comes back with all that it held."""
    _foreign(stage, blocks)
    asked = await _restarted(stage, blocks, others, stage.valkey.snapshot())
    return first_wrong(blocks, [*asked, *await _recomputed(stage, blocks)])


async def back_empty(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
    """It has lost everything, and another engine's fault is the first to write there."""
    await stage.keep(blocks)
    asked = await _restarted(stage, blocks, others, None)
    _foreign(stage, blocks)
    asked += await _answered(stage, blocks)
    return first_wrong(blocks, [*asked, *await _recomputed(stage, blocks)])


async def back_older(stage: Stage, blocks: Sequence[Block], others: Sequence[Block]) -> list[End]:
    """What had been found wrong, removed and replaced is there again."""
    _foreign(stage, blocks)
    older = stage.valkey.snapshot()
    asked = [await stage.ask(blocks), *await _recomputed(stage, blocks)]
    asked += await _restarted(stage, blocks, others, older)
    return first_wrong(blocks, [*asked, *await _recomputed(stage, blocks)])


RESTARTS: Kinds = {
    "Valkey restarted while it is used": ("40", restarted, same),
    "Valkey back empty": ("40", back_empty, same),
    "Valkey back from an older snapshot": ("40", back_older, same),
}
