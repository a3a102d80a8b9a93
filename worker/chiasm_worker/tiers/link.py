"""What the event loop and the engine's thread share: the connection's slots, and the counters.

Every attribute has one writer and is replaced or raised, never changed in parts, so that the other
thread may read it at any moment. `engine_gen` is the fence: it rises before anything is exchanged
that gives vectors their meaning, and what was asked, found or written under an older one is
dropped wherever it is met.

Must not know: sockets, the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract.block_guard import Expected, Verdict
from chiasm_contract.block_record import SCOPE_BYTES
from chiasm_contract.block_wire import Found
from chiasm_contract.fingerprint import Value

from chiasm_worker.kvcache.rebuild_cost import BlockKind
from chiasm_worker.tiers.staging import Staging


@dataclass(frozen=True, slots=True)
class Namespace:
    """What the blocks of one engine generation are: their identity and the manifest behind it."""

    engine_gen: int
    compute_fp: str
    repr_fp: str
    fields: Mapping[str, Value]
    payload_bytes: int

    def expected(self, scope_fp: str, block_key: bytes) -> Expected:
        """What a record must say to be that block of these readers."""
        return Expected(
            repr_fp=bytes.fromhex(self.repr_fp),
            scope=bytes.fromhex(scope_fp)[:SCOPE_BYTES],
            block_key=block_key,
            payload_bytes=self.payload_bytes,
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """What the sidecar put into read slots for one request."""

    engine_gen: int
    staging: Staging
    found: Mapping[bytes, Found]

    @property
    def slots(self) -> list[int]:
        """The read slots that are to be given back."""
        return [found.slot for found in self.found.values() if found.slot >= 0]


@dataclass(frozen=True, slots=True)
class Offer:
    """Write slots that hold records of one scope, with the key of each."""

    engine_gen: int
    scope_fp: str
    staging: Staging
    keys_by_slot: Mapping[int, bytes]


@dataclass(slots=True)
class TierCounters:
    """Totals since start.

    Attributes:
        restored_tokens: tokens that came from a tier; engine's thread.
        offered_blocks: records written into slots; engine's thread.
        skipped_blocks: blocks worth offering for which there was no free slot in time; engine's
            thread.
        taken: how records from outside were judged before they became findable; engine's thread.
        fetches: how asking ended; event loop.
        found: the sidecar's verdicts on what was asked for; event loop.
        stored: the sidecar's verdicts on what was offered; event loop.
    """

    restored_tokens: Counter[BlockKind] = field(default_factory=Counter)
    offered_blocks: Counter[BlockKind] = field(default_factory=Counter)
    skipped_blocks: int = 0
    taken: Counter[Verdict] = field(default_factory=Counter)
    fetches: Counter[str] = field(default_factory=Counter)
    found: Counter[Verdict] = field(default_factory=Counter)
    stored: Counter[Verdict] = field(default_factory=Counter)


class TierLink:
    """The fence, the present slots and the counters."""

    def __init__(self) -> None:
        self.engine_gen = 0
        # None: not connected, so nothing is offered.
        self.staging: Staging | None = None
        self.counters = TierCounters()
