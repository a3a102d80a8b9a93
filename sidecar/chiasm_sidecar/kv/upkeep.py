"""What happens beside requests: queued records are written, retired namespaces are swept.

A sweep never hurries: a batch, a pause. It begins with the tombstone, so nothing can be written
behind it, and ends when no tier finds anything more. A tier that fails is asked again later; until
then the namespace stays retired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from chiasm_sidecar.kv.meters import place_name
from chiasm_sidecar.kv.namespaces import Registry
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.level import Level

log = logging.getLogger("chiasm.sidecar.kv")

BATCH = 256
PAUSE_SECONDS = 0.1
_RETRY_SECONDS = 30.0


async def sweep(
    levels: Sequence[Level],
    registry: Registry,
    pause_seconds: float = PAUSE_SECONDS,
    retry_seconds: float = _RETRY_SECONDS,
) -> None:
    """Return when all that is retired is swept, now or by a process of before."""
    for level in levels:
        for prefix in level.tier.tombstones():
            await _swept([level], prefix, pause_seconds)
    while retired := registry.retired():
        for prefix in retired:
            if await _swept(levels, prefix, pause_seconds):
                registry.swept(prefix)
                log.info("a namespace is swept", extra={"fields": {"namespace": prefix}})
        if registry.retired():
            await asyncio.sleep(retry_seconds)


async def _swept(levels: Sequence[Level], prefix: str, pause_seconds: float) -> bool:
    done = True
    for level in levels:
        try:
            await level.tier.retire(prefix)
            while await level.tier.sweep(prefix, BATCH):  # noqa: ASYNC110 - pauses, waits for nothing
                await asyncio.sleep(pause_seconds)
        except TierFailed as error:
            done = False
            words = {"tier": place_name(level.tier.place), "detail": str(error)}
            log.warning("a sweep is put off", extra={"fields": words})
    return done
