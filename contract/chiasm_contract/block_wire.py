"""What worker and sidecar say on the block service's socket (`names.KV_SOCKET`).

    frame   length 4 (of what follows) | kind 1 | call 4 | body

Numbers are little-endian. The worker asks, the sidecar answers with the same `call`; RELEASE has no
answer. One FETCH and one STORE serve a whole request or step: a call costs more than a block.

Payloads do not travel here. Both sides map one file of equal slots, `staging_path`: slots
0..num_read_slots-1 are filled by the sidecar and given back by the worker (RELEASE), the others are
filled by the worker and given back by the sidecar (the answer to STORE).

Must not know: sockets, files, what a block means. Any bytes decode or raise ValueError.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from chiasm_contract.block_guard import (
    QUARANTINE_REASONS,
    REJECT_FIELDS,
    Outcome,
    Verdict,
)
from chiasm_contract.block_record import FINGERPRINT_BYTES, MALFORMED_REASONS
from chiasm_contract.fingerprint import Value
from chiasm_contract.trace_context import CONTEXT_BYTES

MAX_FRAME_BYTES = 2**22
MAX_KEYS = 65_536
MAX_GROUPS = 1024

_FRAME = struct.Struct("<IBI")
_FETCH = struct.Struct("<Q32sII")
_GROUP = struct.Struct("<BII")
_KEY = struct.Struct(f"{FINGERPRINT_BYTES}s")
_COUNT = struct.Struct("<I")
_FOUND = struct.Struct("<BBBxi")
_STORE = struct.Struct("<Q32sI")
_STORED = struct.Struct("<IBBxx")


class Kind(enum.IntEnum):
    """What a frame is."""

    HELLO = 1
    FETCH = 2
    RELEASE = 3
    STORE = 4
    WELCOME = 65
    FOUND = 66
    STORED = 68
    REFUSED = 127


class Tier(enum.IntEnum):
    """Where a record was found."""

    NONE = 0
    HOST = 1
    DISK = 2
    VALKEY = 3
    PEER = 4


class GroupKind(enum.IntEnum):
    """What of a group is of use when not all of it is there."""

    CHAIN = 0  # the leading run, up to the first block that is not there
    ENTRY = 1  # all or nothing


# Words of verdicts, by number; a number beyond them is a word of a later version. Of misses:
# absent: no tier has it. stored: there is one already, the offer was not needed. busy: no room now
# (slots, queue). dropped: not handed out because the rest of its group is missing or the group is
# not needed. retired: its namespace takes part no more. The others say why bytes are no record.
DETAILS = (
    "",
    "absent",
    "stored",
    "busy",
    "dropped",
    "retired",
    *MALFORMED_REASONS,
    *REJECT_FIELDS,
    *QUARANTINE_REASONS,
)
_NUMBERS = {word: number for number, word in enumerate(DETAILS)}


class Hello(BaseModel):
    """The first frame of a connection, as JSON: who asks, and for blocks of which shape."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    incarnation: str
    engine_gen: int = Field(ge=0)
    compute_fp: str = Field(pattern="^[0-9a-f]{64}$")
    repr_fp: str = Field(pattern="^[0-9a-f]{64}$")
    fields: dict[str, Value] = Field(description="The manifest behind both digests.")
    payload_bytes: int = Field(ge=1, le=2**31)


class Welcome(BaseModel):
    """The answer to HELLO, as JSON; `staging_path` is the same file in both containers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    staging_path: str
    slot_bytes: int
    num_read_slots: int
    num_write_slots: int


@dataclass(frozen=True, slots=True)
class Group:
    """Block keys that belong together.

    Attributes:
        unless_chain: the group is not fetched when at least so many leading blocks of the fetch's
            first group are of use; 0: always fetched.
    """

    kind: GroupKind
    keys: tuple[bytes, ...]
    unless_chain: int = 0


@dataclass(frozen=True, slots=True)
class Fetch:
    """All blocks that one request could use, in order.

    Attributes:
        trace: TraceContext.to_bytes of the span that waits for the answer; empty: nobody records.
    """

    engine_gen: int
    scope_fp: bytes
    groups: tuple[Group, ...]
    trace: bytes = b""


class Found(NamedTuple):
    """What became of one key; `slot` holds the record when the outcome is use, else -1."""

    verdict: Verdict
    tier: Tier = Tier.NONE
    slot: int = -1


@dataclass(frozen=True, slots=True)
class Store:
    """Write slots that hold whole records, offered to the tiers."""

    engine_gen: int
    scope_fp: bytes
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A write slot that is free again, and what became of its record."""

    slot: int
    verdict: Verdict


def frame(kind: Kind, call: int, body: bytes) -> bytes:
    """One frame."""
    return _FRAME.pack(len(body) + _FRAME.size - 4, kind, call) + body


def frame_length(prefix: bytes) -> int:
    """Bytes that follow a frame's first four.

    Raises: ValueError when that is not possible.
    """
    if len(prefix) != _COUNT.size:
        raise ValueError(f"A frame begins with {_COUNT.size} bytes of length, not {len(prefix)}.")
    (length,) = _COUNT.unpack(prefix)
    if not _FRAME.size - 4 <= length <= MAX_FRAME_BYTES:
        raise ValueError(f"A frame of {length} bytes; {MAX_FRAME_BYTES} are allowed.")
    return int(length)


def split_frame(data: bytes) -> tuple[Kind, int, memoryview]:
    """Kind, call and body of a frame without its first four bytes.

    Raises: ValueError for an unknown kind, or when the frame is too short to have one.
    """
    if len(data) < _FRAME.size - 4:
        raise ValueError(f"A frame of {len(data)} bytes has no kind and call.")
    kind, call = struct.unpack_from("<BI", data)
    return Kind(kind), call, memoryview(data)[_FRAME.size - 4 :]


def encode_fetch(fetch: Fetch) -> bytes:
    """The body of FETCH."""
    head = (fetch.engine_gen, fetch.scope_fp, len(fetch.groups), len(fetch.trace))
    parts = [_FETCH.pack(*head)]
    for group in fetch.groups:
        parts.append(_GROUP.pack(group.kind, group.unless_chain, len(group.keys)))
        parts += group.keys
    return b"".join([*parts, fetch.trace])


def decode_fetch(body: bytes | memoryview) -> Fetch:
    """Raises: ValueError for anything that `encode_fetch` did not write."""
    reader = _Reader(body)
    engine_gen, scope_fp, num_groups, num_trace_bytes = reader.take(_FETCH)
    if num_groups > MAX_GROUPS:
        raise ValueError(f"A fetch of {num_groups} groups; {MAX_GROUPS} are allowed.")
    if num_trace_bytes not in {0, CONTEXT_BYTES}:
        raise ValueError(f"A trace of {num_trace_bytes} bytes; it has {CONTEXT_BYTES} or none.")
    groups, num_keys = [], 0
    for _ in range(num_groups):
        kind, unless_chain, count = reader.take(_GROUP)
        num_keys += count
        if num_keys > MAX_KEYS:
            raise ValueError(f"A fetch of {num_keys} keys or more; {MAX_KEYS} are allowed.")
        keys = reader.keys(count)
        groups.append(Group(GroupKind(kind), keys, unless_chain))
    trace = reader.raw(num_trace_bytes)
    reader.end()
    return Fetch(engine_gen, scope_fp, tuple(groups), trace)


def encode_found(found: Sequence[Found]) -> bytes:
    """The body of FOUND: one entry a key, in the order of the fetch."""
    entries = (
        _FOUND.pack(each.verdict.outcome, _NUMBERS[each.verdict.detail], each.tier, each.slot)
        for each in found
    )
    return _COUNT.pack(len(found)) + b"".join(entries)


def decode_found(body: bytes | memoryview) -> list[Found]:
    """Raises: ValueError for anything that `encode_found` did not write."""
    reader = _Reader(body)
    data = reader.raw(reader.count(_FOUND.size) * _FOUND.size)
    reader.end()
    return [
        Found(_verdict(outcome, word), _tier(tier), slot)
        for outcome, word, tier, slot in _FOUND.iter_unpack(data)
    ]


def encode_store(store: Store) -> bytes:
    """The body of STORE."""
    head = _STORE.pack(store.engine_gen, store.scope_fp, len(store.slots))
    return head + struct.pack(f"<{len(store.slots)}I", *store.slots)


def decode_store(body: bytes | memoryview) -> Store:
    """Raises: ValueError for anything that `encode_store` did not write."""
    reader = _Reader(body)
    engine_gen, scope_fp, count = reader.take(_STORE)
    slots = reader.numbers(count)
    reader.end()
    return Store(engine_gen, scope_fp, slots)


def encode_stored(stored: Sequence[Stored]) -> bytes:
    """The body of STORED."""
    entries = (
        _STORED.pack(each.slot, each.verdict.outcome, _NUMBERS[each.verdict.detail])
        for each in stored
    )
    return _COUNT.pack(len(stored)) + b"".join(entries)


def decode_stored(body: bytes | memoryview) -> list[Stored]:
    """Raises: ValueError for anything that `encode_stored` did not write."""
    reader = _Reader(body)
    entries = [reader.take(_STORED) for _ in range(reader.count(_STORED.size))]
    reader.end()
    return [Stored(slot, _verdict(outcome, word)) for slot, outcome, word in entries]


def encode_slots(slots: Sequence[int]) -> bytes:
    """The body of RELEASE."""
    return _COUNT.pack(len(slots)) + struct.pack(f"<{len(slots)}I", *slots)


def decode_slots(body: bytes | memoryview) -> tuple[int, ...]:
    """Raises: ValueError for anything that `encode_slots` did not write."""
    reader = _Reader(body)
    slots = reader.numbers(reader.count(_COUNT.size))
    reader.end()
    return slots


# Remembered, for one answer holds hundreds of the same few.
@functools.cache
def _verdict(outcome: int, word: int) -> Verdict:
    return Verdict(Outcome(outcome), DETAILS[word] if word < len(DETAILS) else "unknown")


_tier = functools.cache(Tier)


class _Reader:
    """Takes a body apart from the front; never beyond its end."""

    def __init__(self, body: bytes | memoryview) -> None:
        self._body = memoryview(body)
        self._at = 0

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        self._need(layout.size)
        values = layout.unpack_from(self._body, self._at)
        self._at += layout.size
        return values

    def raw(self, length: int) -> bytes:
        self._need(length)
        self._at += length
        return bytes(self._body[self._at - length : self._at])

    def keys(self, count: int) -> tuple[bytes, ...]:
        data = self.raw(count * FINGERPRINT_BYTES)
        return tuple([key for (key,) in _KEY.iter_unpack(data)])

    def count(self, size: int) -> int:
        """A count of entries of so many bytes, all of which are there."""
        (count,) = self.take(_COUNT)
        self._need(count * size)
        return int(count)

    def numbers(self, count: int) -> tuple[int, ...]:
        self._need(4 * count)
        self._at += 4 * count
        return struct.unpack_from(f"<{count}I", self._body, self._at - 4 * count)

    def end(self) -> None:
        if self._at != len(self._body):
            raise ValueError(f"{len(self._body) - self._at} bytes too many.")

    def _need(self, length: int) -> None:
        if self._at + length > len(self._body):
            raise ValueError(f"The body ends {self._at + length - len(self._body)} bytes early.")
