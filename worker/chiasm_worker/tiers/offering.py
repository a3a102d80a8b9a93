"""Writes blocks that became findable into free slots, for the tiers to keep.

Called around the end of a step, on the engine's thread, while the step's requests hold the blocks.
It never waits: without a free slot, or when a step's share of bytes is used up, the rest of a chain
is left for its request's next step, and is lost if there is none. What a request found in the own
memory is offered only if the tiers have it not already, as far as is remembered.

Must not know: sockets, torch, who keeps the blocks.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chiasm_contract.block_record import (
    HEADER_BYTES,
    TRAILER_BYTES,
    Header,
    Modality,
    RecordKind,
    encode_header,
    encode_trailer,
)
from chiasm_contract.errors import InvariantError
from xxhash import xxh3_64_intdigest

from chiasm_worker.kvcache.media_cache import MediaHandle
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild
from chiasm_worker.request import Request
from chiasm_worker.tiers.engine_side import EngineSide
from chiasm_worker.tiers.link import Offer
from chiasm_worker.tiers.staging import Staging
from chiasm_worker.tiers.worth import OfferPolicy

_MAX_KNOWN = 65_536
_KINDS = {kind: RecordKind[kind.name] for kind in BlockKind}


@dataclass(slots=True)
class _Progress:
    """How many of a request's blocks were looked at, are worth offering, and were offered."""

    num_seen: int = 0
    num_worthy: int = 0
    num_done: int = 0
    media_done: set[int] = field(default_factory=set)
    media_left: dict[int, int] = field(default_factory=dict)  # index -> blocks, so far unoffered


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that is to be written, and what it says of itself."""

    block_id: int
    key: bytes
    rebuild: Rebuild


class Offering:
    """Chooses what to offer and writes it."""

    def __init__(self, side: EngineSide, policy: OfferPolicy | None = None) -> None:
        self._side = side
        self._policy = policy or OfferPolicy()
        self._progress: dict[str, _Progress] = {}
        # Keys that the tiers were offered or have brought, oldest first.
        self._known: OrderedDict[bytes, None] = OrderedDict()
        # Keys that were offered but not kept; filled by the event loop.
        self.not_kept: deque[bytes] = deque()
        self._staging: Staging | None = None
        self._num_left = 0
        self._written: defaultdict[str, dict[int, bytes]] = defaultdict(dict)

    def begin(self, requests: Iterable[Request]) -> None:
        """A step ran: offer encoder outputs, while those that it read are held."""
        self._follow_connection()
        if self._staging is None:
            return
        self._num_left = self._policy.max_step_bytes // self._side.namespace.payload_bytes
        for request in requests:
            progress = self._progress.setdefault(request.request_id, _Progress())
            for index, handle in request.media.items():
                if index in progress.media_done:
                    continue
                if self._offer_media(request, handle):
                    progress.media_done.add(index)
                    progress.media_left.pop(index, None)
                else:
                    progress.media_left[index] = len(handle.block_ids)

    def finish(self, requests: Iterable[Request]) -> list[Offer]:
        """Its blocks are findable: offer the chains. Returns all that was written."""
        if self._staging is None:
            return []
        for request in requests:
            self._offer_chain(request, self._progress.setdefault(request.request_id, _Progress()))
        written, self._written = self._written, defaultdict(dict)
        return [
            Offer(self._side.namespace.engine_gen, scope_fp, self._staging, keys_by_slot)
            for scope_fp, keys_by_slot in written.items()
        ]

    def end(self, request: Request) -> None:
        """A request ended: what it has not offered is skipped."""
        progress = self._progress.pop(request.request_id, _Progress())
        num_left = progress.num_worthy - progress.num_done + sum(progress.media_left.values())
        self._side.link.counters.skipped_blocks += num_left

    def brought(self, keys: Iterable[bytes]) -> None:
        """The tiers had these."""
        self._follow_connection()
        self._remember(keys)

    def _follow_connection(self) -> None:
        """Another connection may have other tiers behind it: they are known to have nothing."""
        is_current = self._side.link.engine_gen == self._side.namespace.engine_gen
        staging = self._side.link.staging if is_current else None
        if staging is not self._staging:
            self._staging = staging
            self._known.clear()
        while self.not_kept:
            self._known.pop(self.not_kept.popleft(), None)

    def _remember(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._known[key] = None
            self._known.move_to_end(key)
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    def _offer_media(self, request: Request, handle: MediaHandle) -> bool:
        """Whether nothing is left to do for an item."""
        contents = self._side.media_cache.contents(request.scope.root, handle.item)
        if not handle.is_new and contents[0].key in self._known:
            return True
        rebuild = self._side.media_cache.rebuild(handle.item)
        if not self._wants(rebuild, len(contents), 0, was_used_again=not handle.is_new):
            return True
        blocks = [
            _Block(
                block_id, content.key, self._side.media_cache.rebuild(handle.item, content.index)
            )
            for block_id, content in zip(handle.block_ids, contents, strict=True)
        ]
        return self._write(request, blocks)

    def _offer_chain(self, request: Request, progress: _Progress) -> None:
        size, num_hits = request.table.block_size, request.num_cached_tokens or 0
        for index in range(progress.num_seen, request.table.num_committed):
            rebuild = request.chain.content(index, request.token_ids).rebuild
            end = (index + 1) * size
            if self._wants(rebuild, 1, end, was_used_again=end <= num_hits):
                progress.num_worthy = index + 1
            progress.num_seen = index + 1
        for index in range(
            progress.num_done, min(progress.num_worthy, request.table.num_committed)
        ):
            content = request.chain.content(index, request.token_ids)
            block = _Block(request.table.block_ids[index], content.key, content.rebuild)
            was_found = (index + 1) * size <= num_hits and content.key in self._known
            if not was_found and not self._write(request, [block]):
                return
            progress.num_done = index + 1

    def _wants(
        self, rebuild: Rebuild, num_blocks: int, chain_tokens: int, *, was_used_again: bool
    ) -> bool:
        num_bytes = num_blocks * self._side.namespace.payload_bytes
        return self._policy.wants(
            rebuild, self._side.pool.costs, num_bytes, chain_tokens, was_used_again=was_used_again
        )

    def _write(self, request: Request, blocks: Sequence[_Block]) -> bool:
        """Write all of these blocks, or none if there is no room for them now."""
        staging = self._staging
        in_share = len(blocks) <= self._num_left or not self._written
        if staging is None or len(blocks) > staging.num_free or not in_share:
            return False
        self._num_left -= len(blocks)
        for block in blocks:
            slot = staging.take()
            if slot is None:
                raise InvariantError("A free slot was taken by somebody else; bug.")
            self._write_record(staging.record(slot), block, request.scope.scope_fp)
            self._written[request.scope.scope_fp][slot] = block.key
            self._side.link.counters.offered_blocks[block.rebuild.kind] += 1
        self._remember(block.key for block in blocks)
        return True

    def _write_record(self, record: memoryview, block: _Block, scope_fp: str) -> None:
        payload = record[HEADER_BYTES:-TRAILER_BYTES]
        is_kv = block.rebuild.kind in (BlockKind.TEXT_KV, BlockKind.MEDIA_KV)
        self._side.memory.read_payload(block.block_id, payload, is_kv=is_kv)
        expected = self._side.namespace.expected(scope_fp, block.key)
        header = Header(
            kind=_KINDS[block.rebuild.kind],
            modality=Modality[block.rebuild.modality.upper()],
            num_tokens=block.rebuild.num_tokens,
            payload_bytes=len(payload),
            generation=self._side.pool.slot_gen(block.block_id),
            checksum=xxh3_64_intdigest(payload),
            repr_fp=expected.repr_fp,
            block_key=block.key,
            scope=expected.scope,
        )
        record[:HEADER_BYTES] = encode_header(header)
        record[-TRAILER_BYTES:] = encode_trailer(header)
