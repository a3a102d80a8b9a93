"""The block service put together from its settings, started and stopped.

A tier that cannot be opened is left out, with a line in the log and a sentence to whoever wants to
know, and is tried again: meanwhile the others serve, and the worker computes what they do not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from chiasm_contract.block_record import RecordKind
from chiasm_contract.ending import end
from chiasm_contract.tiers import BlockTiers, RecordKindName

from chiasm_sidecar.kv.meters import Meters, place_name
from chiasm_sidecar.kv.namespaces import Registry
from chiasm_sidecar.kv.peers.tier import PeerTier
from chiasm_sidecar.kv.retired_list import RetiredList
from chiasm_sidecar.kv.service import BlockService
from chiasm_sidecar.kv.session import Admitted, Tell
from chiasm_sidecar.kv.store import BlockStore
from chiasm_sidecar.kv.tiers.arena import ArenaTier, Region
from chiasm_sidecar.kv.tiers.base import Tier, TierFailed
from chiasm_sidecar.kv.tiers.disk import DiskTier
from chiasm_sidecar.kv.tiers.host import HostTier
from chiasm_sidecar.kv.tiers.level import Level
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from chiasm_sidecar.kv.upkeep import Sweeper
from chiasm_sidecar.metrics import Metrics

log = logging.getLogger("chiasm.sidecar.kv")

Lacks = Callable[[tuple[str, ...]], None]

_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 30.0


@contextlib.asynccontextmanager
async def block_service(
    settings: BlockTiers,
    admitted: Admitted,
    metrics: Metrics,
    lacks: Lacks,
    tell: Tell | None = None,
) -> AsyncIterator[BlockStore]:
    """Serve the socket while the block runs; leaving it closes every tier.

    `lacks` is told why tiers are left out, all of them whenever that changes; `tell` of each read
    for a request whose trace is sampled.

    Raises: OSError when the socket cannot be made.
    """
    meters = Meters(metrics)
    registry = Registry()
    levels = _levels(settings, meters)
    store = BlockStore(levels, registry, meters)
    sweeper = Sweeper(levels, registry)

    def retire(prefixes: Sequence[str]) -> None:
        sweeper.retire(prefixes)
        store.recount()

    retired = RetiredList(settings.retired_path, retire, meters)
    retired.look()  # before anybody asks
    tasks = [asyncio.create_task(store.write(level)) for level in levels]
    tasks.append(asyncio.create_task(_open_and_sweep(levels, store, sweeper, lacks)))
    tasks.append(asyncio.create_task(retired.watch()))
    try:
        async with BlockService(settings, store, admitted, meters, tell).listening():
            yield store
    finally:
        await end(tasks)
        await sweeper.close()
        await store.close()


def _levels(settings: BlockTiers, meters: Meters) -> list[Level]:
    levels: list[Level] = []

    def add(tier: Tier, kinds: Iterable[RecordKindName]) -> None:
        chosen = frozenset(RecordKind[kind.upper()] for kind in kinds)
        levels.append(Level(tier, meters, time.monotonic, chosen, settings.write_queue_bytes))

    arena: ArenaTier | None = None
    if settings.peers is not None:
        arena = ArenaTier(Region(settings.host_bytes), settings.namespace_share)
        levels.append(Level(arena, meters, time.monotonic))
    elif settings.host_bytes:
        tier = HostTier(settings.host_bytes, settings.namespace_share)
        levels.append(Level(tier, meters, time.monotonic))
    if settings.disk is not None:
        add(DiskTier(settings.disk, settings.namespace_share), settings.disk.kinds)
    if settings.peers is not None and arena is not None:
        add(PeerTier(settings.peers, arena, meters), kinds=())
    if settings.valkey is not None:
        add(ValkeyTier(settings.valkey, settings.namespace_share), settings.valkey.kinds)
    return levels


async def _open_and_sweep(
    levels: list[Level], store: BlockStore, sweeper: Sweeper, lacks: Lacks
) -> None:
    faults: dict[Level, str] = {}
    closed = [level for level in levels if not await _opens(level, faults, lacks)]
    store.recount()
    async with asyncio.TaskGroup() as late:
        for level in closed:
            late.create_task(_keep_opening(level, faults, store, sweeper, lacks))
        await sweeper.begin()


async def _keep_opening(
    level: Level, faults: dict[Level, str], store: BlockStore, sweeper: Sweeper, lacks: Lacks
) -> None:
    pause = _FIRST_PAUSE_SECONDS
    await asyncio.sleep(pause)
    while not await _opens(level, faults, lacks):
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        await asyncio.sleep(pause)
    store.recount()
    await sweeper.resume(level)


async def _opens(level: Level, faults: dict[Level, str], lacks: Lacks) -> bool:
    """Whether a tier can be used now; `faults` are of those that cannot."""
    place = place_name(level.tier.place)
    before = faults.get(level)
    try:
        await level.tier.open()
    except TierFailed as error:
        faults[level] = str(error)
        if before != str(error):
            words = {"tier": place, "detail": str(error)}
            log.error("a tier cannot be used", extra={"fields": words})
            lacks(tuple(faults.values()))
        return False
    if faults.pop(level, None) is not None:
        log.info("a tier can be used after all", extra={"fields": {"tier": place}})
        lacks(tuple(faults.values()))
    return True
