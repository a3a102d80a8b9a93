"""The host tier with peers: records in one region, which other replicas read without hindrance.

The region is claimed once, never moves and is never given back while the process lives, for who was
told an address may read it at any time, by NIXL without asking. It is divided into equal slots:

    | generation 8, zeros 56 | record | generation 8, zeros 56 |

Both words are the slot's generation, counted on from a random number with each content, or 0 while
there is none or it is being written. A reader was told a generation: of another one in either word
the slot was emptied or used again since, and what was read is nothing. That tells an overtaken read
from a wrong one; what may be used is decided by the record's own ends and checksum, for between the
two words bytes may come in any order.

One size of slot at a time: a record of another size takes out all others. A pod serves one model,
and nothing of one before it is of use to it.

Must not know: sockets, peers, how others read.
"""

from __future__ import annotations

import ctypes
import mmap
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from chiasm_contract.block_guard import Verdict
from chiasm_contract.block_record import HEADER_BYTES, Header, MalformedRecord, parse_header

from chiasm_sidecar.kv.namespaces import Namespace
from chiasm_sidecar.kv.tiers.host import HostTier
from chiasm_sidecar.kv.tiers.ledger import Ledger

_WORD = struct.Struct("<Q")
_LEAD_BYTES = _TAIL_BYTES = 64


def slot_bytes(record_bytes: int) -> int:
    """What a slot for records of that size takes."""
    return _LEAD_BYTES + record_bytes + _TAIL_BYTES


def record_in(slot: memoryview, generation: int) -> bytes | None:
    """A copy of the record in a slot that was read; None when it is not of that generation."""
    ends = (_WORD.unpack_from(slot)[0], _WORD.unpack_from(slot, len(slot) - _TAIL_BYTES)[0])
    if ends != (generation, generation):
        return None
    return bytes(slot[_LEAD_BYTES:-_TAIL_BYTES])


class Region:
    """Memory with a fixed address, zeros at first; pages are taken when they are written."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._map = mmap.mmap(-1, num_bytes)
        self.view = memoryview(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot begins in its region, and what its words must be."""

    offset: int
    generation: int


class Arena:
    """A region's slots: which are free, and the generation of each that is not.

    Invariant: free slots have 0 in both words.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        self.slot_bytes = 0
        self._free: list[int] = []
        self._generations: dict[int, int] = {}
        self._next = secrets.randbits(63) + 1

    def divide(self, record_bytes: int) -> None:
        """Empty every slot, and begin anew with slots for records of this size."""
        for offset in list(self._generations):
            self.empty(offset)
        self.slot_bytes = slot_bytes(record_bytes)
        last = self.region.num_bytes - self.slot_bytes
        self._free = list(reversed(range(0, last + 1, self.slot_bytes)))

    def fill(self, record: bytes) -> Place:
        """Put a record into a free slot, of which there is one."""
        offset = self._free.pop()
        start = offset + _LEAD_BYTES
        self.region.view[start : start + len(record)] = record
        generation, self._next = self._next, self._next + 1
        self._generations[offset] = generation
        self._set_words(offset, generation)
        return Place(offset, generation)

    def empty(self, offset: int) -> None:
        """End a slot's content."""
        self._set_words(offset, 0)
        del self._generations[offset]
        self._free.append(offset)

    def record(self, place: Place) -> bytes:
        """A copy of what is in a slot."""
        start = place.offset + _LEAD_BYTES
        end = place.offset + self.slot_bytes - _TAIL_BYTES
        return bytes(self.region.view[start:end])

    def head(self, place: Place) -> bytes:
        """The record's header."""
        start = place.offset + _LEAD_BYTES
        return bytes(self.region.view[start : start + HEADER_BYTES])

    def piece(
        self, places: Sequence[Place], size: int, start: int, end: int
    ) -> list[bytes | memoryview]:
        """Some of the bytes of slots of that size back to back, as they are until anything else is
        done here; zeros for those with other content.

        A slot that is used again between two pieces has zeros in its last word.
        """
        parts: list[bytes | memoryview] = []
        while start < end:
            number, at = divmod(start, size)
            length = min(size - at, end - start)
            place = places[number]
            there = size == self.slot_bytes
            if there and self._generations.get(place.offset) == place.generation:
                parts.append(self.region.view[place.offset + at : place.offset + at + length])
            else:
                parts.append(bytes(length))
            start += length
        return parts

    def _set_words(self, offset: int, generation: int) -> None:
        last = offset + self.slot_bytes - _TAIL_BYTES
        _WORD.pack_into(self.region.view, offset, generation)
        _WORD.pack_into(self.region.view, last, generation)


class ArenaTier(HostTier):
    """The host tier, its records in an arena."""

    def __init__(self, region: Region, namespace_share: float) -> None:
        super().__init__(region.num_bytes, namespace_share)
        self.arena = Arena(region)
        self._share = namespace_share
        self._places: dict[str, dict[bytes, Place]] = {}
        self._record_bytes = 0

    def find(self, name: str, record_bytes: int, keys: Sequence[bytes]) -> list[Place | None]:
        """Where another replica may read the records under some keys, if they are of that size."""
        if self._is_retired(name) or record_bytes != self._record_bytes:
            return [None] * len(keys)
        found = list(map(self._places.get(name, {}).get, keys))
        self._ledger.touch(name, [key for key, place in zip(keys, found, strict=True) if place])
        return found

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Copies: a slot may be used again while the copy is judged."""
        places = map(self._places.get(namespace.name, {}).get, keys)
        return [None if place is None else self.arena.record(place) for place in places]

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        """Copy the record into a slot; one of another size than those there takes them out."""
        if len(record) != self._record_bytes:
            self.arena.divide(len(record))
            self._ledger = Ledger(self.arena.region.num_bytes, self._share)
            self._places.clear()
            self._record_bytes = len(record)
        return await super().put(namespace, header, record)

    def _taken_bytes(self, record: bytes) -> int:
        return self.arena.slot_bytes

    def _header(self, name: str, key: bytes) -> Header | None:
        try:
            return parse_header(self.arena.head(self._places[name][key]))
        except MalformedRecord:  # whoever reaches the transport's port could have written there
            return None

    def _keep(self, name: str, key: bytes, record: bytes) -> None:
        self._places.setdefault(name, {})[key] = self.arena.fill(record)

    def _remove(self, name: str, key: bytes) -> None:
        places = self._places.get(name, {})
        place = places.pop(key, None)
        if place is not None:
            self.arena.empty(place.offset)
            if not places:
                del self._places[name]
