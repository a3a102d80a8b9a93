"""Takes what was fetched for a request into the pool, on the pool's own thread.

A chain is taken up to its first gap, an entry whole or not at all; what the pool holds already is
not taken again. Everything is read while it is built, so that nothing of it is evicted for the
rest, and given up at the end with the credit of what was just used: it is there for its request
like any prefix, and makes room like any prefix for those that run meanwhile. A request that waits
therefore keeps nobody from running, and one that is aborted leaves nothing to give back.

Must not know: sockets, torch, when requests run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chiasm_contract.block_guard import Outcome, Verdict

from chiasm_worker.kvcache.prefix_cache import BlockContent, MediaBlockContent
from chiasm_worker.kvcache.rebuild_cost import Rebuild
from chiasm_worker.request import Request
from chiasm_worker.tiers.engine_side import EngineSide
from chiasm_worker.tiers.gate import Gate, Judged
from chiasm_worker.tiers.link import Fetched
from chiasm_worker.tiers.wanted import Wanted, WantedEntry

_OUTDATED = Verdict(Outcome.REJECT, "generation")


class Restoring:
    """Fills the pool from read slots."""

    def __init__(self, side: EngineSide) -> None:
        self._side = side
        self._gate = Gate(side.pool, side.memory)

    def restore(self, request: Request, wanted: Wanted, fetched: Fetched) -> list[bytes]:
        """Make what was fetched for a request findable, as far as it is judged to be of use.

        Nothing of another engine generation is looked at. Returns the keys that were taken.
        """
        if not fetched.engine_gen == self._side.namespace.engine_gen == self._side.link.engine_gen:
            self._side.link.counters.taken[_OUTDATED] += len(fetched.slots)
            return []
        taken = self._take_chain(request, wanted, fetched) if wanted.chain else []
        for entry in wanted.entries:
            taken += self._take_entry(entry, fetched, request.scope.scope_fp)
        return taken

    def _take_chain(self, request: Request, wanted: Wanted, fetched: Fetched) -> list[bytes]:
        asked, taken = {content.key for content in wanted.chain}, []
        with self._holding() as held:
            for index in range((len(request.token_ids) - 1) // request.table.block_size):
                content = request.chain.content(index, request.token_ids)
                own = self._side.pool.lookup(content.key, content)
                if own is not None:
                    self._side.pool.acquire([own])
                    held.append(own)
                    continue
                if content.key not in asked:
                    break
                judged = self._take(content, fetched, request.scope.scope_fp, held)
                if judged is None:
                    break
                parent_key = content.parent_key if index else None
                self._gate.make_findable(judged, content, content.rebuild, parent_key)
                self._count(content.rebuild)
                taken.append(content.key)
        return taken

    def _take_entry(self, entry: WantedEntry, fetched: Fetched, scope_fp: str) -> list[bytes]:
        if any(self._side.pool.lookup(each.key, each) is not None for each in entry.contents):
            return []  # Whole, because an entry is: somebody else had it made or restored.
        with self._holding() as held:
            all_judged: list[Judged] = []
            for content in entry.contents:
                judged = self._take(content, fetched, scope_fp, held)
                if judged is None:
                    return []
                all_judged.append(judged)
            for content, judged in zip(entry.contents, all_judged, strict=True):
                rebuild = self._side.media_cache.rebuild(content.item, content.index)
                self._gate.make_findable(judged, content, rebuild)
                self._count(rebuild)
            self._side.pool.bind(held)
        return [content.key for content in entry.contents]

    def _take(
        self,
        content: BlockContent | MediaBlockContent,
        fetched: Fetched,
        scope_fp: str,
        held: list[int],
    ) -> Judged | None:
        """One record, in a block that is added to `held`; None if it is not there or no room."""
        found = fetched.found.get(content.key)
        if found is None or found.verdict.outcome is not Outcome.USE:
            return None
        blocks = self._side.pool.allocate(1)
        if blocks is None:
            return None
        held += blocks
        expected = self._side.namespace.expected(scope_fp, content.key)
        record = fetched.staging.record(found.slot)
        judged, verdict = self._gate.take_in(blocks[0], record, expected)
        self._side.link.counters.taken[verdict] += 1
        return judged

    @contextmanager
    def _holding(self) -> Iterator[list[int]]:
        """Blocks that are read until the end, in the order in which they are needed."""
        held: list[int] = []
        try:
            yield held
        finally:
            self._side.pool.release(reversed(held), was_used=False)

    def _count(self, rebuild: Rebuild) -> None:
        self._side.link.counters.restored_tokens[rebuild.kind] += rebuild.num_tokens
