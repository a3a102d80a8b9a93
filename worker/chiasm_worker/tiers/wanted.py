"""Which blocks a request asks the tiers for, and how long it waits for them.

The chain: the prompt's full blocks from the first one that the own pool does not hold. The
entries: encoder outputs (or cross-attention K and V) that the pool does not hold and that the
request will read, unless so much of the chain is found that it need not.

Whether the pool holds a key is asked from another thread than the pool's, so the answer may be old
when it is used: then a block is fetched in vain, or computed. What is really there decides who
takes the blocks in (exchange.py), on the pool's own thread.

Must not know: sockets, torch, clocks.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from chiasm_contract.block_wire import MAX_GROUPS, MAX_KEYS, Fetch, Group, GroupKind

from chiasm_worker.kvcache.block_pool import BlockPool
from chiasm_worker.kvcache.media_cache import MediaCache
from chiasm_worker.kvcache.prefix_cache import BlockContent, MediaBlockContent
from chiasm_worker.kvcache.rebuild_cost import Rebuild, RebuildCosts
from chiasm_worker.media_identity import MediaIdentity
from chiasm_worker.request import Request


@dataclass(frozen=True, slots=True)
class WantedEntry:
    """One item's encoder output; `unless_chain` as in block_wire.Group."""

    item: MediaIdentity
    contents: tuple[MediaBlockContent, ...]
    unless_chain: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that one request could use."""

    chain: tuple[BlockContent, ...]
    entries: tuple[WantedEntry, ...]
    rebuilds: tuple[Rebuild, ...]

    def __bool__(self) -> bool:
        return bool(self.chain or self.entries)

    def fetch(self, engine_gen: int, scope_fp: str, trace: bytes = b"") -> Fetch:
        """The question; the chain is its first group, be it empty. `trace`: as in Fetch."""
        chain = Group(GroupKind.CHAIN, tuple(content.key for content in self.chain))
        entries = (
            Group(
                GroupKind.ENTRY,
                tuple(content.key for content in entry.contents),
                entry.unless_chain,
            )
            for entry in self.entries
        )
        return Fetch(engine_gen, bytes.fromhex(scope_fp), (chain, *entries), trace)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request waits for tiers: as long as computing would take, within bounds.

    Attributes:
        floor_seconds: below this, nobody notices; on a busy machine an answer may take as long.
        ceiling_seconds: above this, something is wrong with the sidecar.
    """

    floor_seconds: float = 0.02
    ceiling_seconds: float = 2.0

    def seconds(self, wanted: Wanted, costs: RebuildCosts) -> float:
        """For what is wanted."""
        rebuild = sum(costs.seconds(each) for each in wanted.rebuilds)
        return min(self.ceiling_seconds, max(self.floor_seconds, rebuild))


def wanted_blocks(
    request: Request, pool: BlockPool, media_cache: MediaCache, num_usable: int
) -> Wanted:
    """What to ask for: nothing that cannot be used, and no more than one question can hold.

    Args:
        request: not yet queued.
        pool: the own one.
        media_cache: knows the blocks of encoder outputs.
        num_usable: leading blocks of the prompt that a prefix hit may have at most.
    """
    num_held, chain, places = 0, [], []
    for index in range(num_usable):
        content = request.chain.content(index, request.token_ids)
        if not pool.holds(content.key):
            chain.append(content)
            places.append(index)
        elif not chain:
            num_held = index + 1
    chain, places = chain[:MAX_KEYS], places[:MAX_KEYS]
    entries: list[WantedEntry] = []
    num_keys = len(chain)
    for item, num_blocks in _needed_unless(request, num_usable).items():
        if 0 < num_blocks <= num_held:
            continue
        contents = tuple(media_cache.contents(request.scope.root, item))
        if all(pool.holds(content.key) for content in contents):
            continue
        num_keys += len(contents)
        if num_keys > MAX_KEYS or len(entries) + 1 >= MAX_GROUPS:
            break
        entries.append(WantedEntry(item, contents, bisect.bisect_left(places, num_blocks)))
    rebuilds = [content.rebuild for content in chain]
    rebuilds += [media_cache.rebuild(entry.item) for entry in entries]
    return Wanted(tuple(chain), tuple(entries), tuple(rebuilds))


def _needed_unless(request: Request, num_usable: int) -> dict[MediaIdentity, int]:
    """Item -> leading blocks of the prompt with which nothing reads it; 0: it is always read."""
    needed: dict[MediaIdentity, int] = {}
    for span in request.prompt.media:
        item, num_blocks = span.item.encoded, -(-span.needed_until // request.table.block_size)
        if num_blocks > num_usable or needed.get(item) == 0:
            needed[item] = 0
        else:
            needed[item] = max(num_blocks, needed.get(item, 0))
    return needed
