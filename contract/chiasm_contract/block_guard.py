"""May this block be used for that request? One pure verdict for every read and write of a record.

    use          everything is as expected
    miss         nothing there, or nothing that is a record
    reject       a record of something else; `detail` names the first field that differs
    quarantine   the right record with wrong bytes: torn, damaged, or two contents under one key
    unavailable  nobody could look (a tier or the sidecar is gone)

Every outcome but `use` ends in computing again, never in serving. Both sides of the socket judge by
this one function: the sidecar before it hands a record out or stores it, the worker before it makes
one findable.

Must not know: files, sockets, clocks, the environment.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from chiasm_contract.block_record import Header, MalformedRecord, Trailer, parse_header


class Outcome(enum.IntEnum):
    """How a check ended; the numbers travel on the block service's socket."""

    USE = 0
    MISS = 1
    REJECT = 2
    QUARANTINE = 3
    UNAVAILABLE = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome; `detail` is a word from a closed list, for counters."""

    outcome: Outcome
    detail: str = ""


USE = Verdict(Outcome.USE)
ABSENT = Verdict(Outcome.MISS, "absent")
UNAVAILABLE = Verdict(Outcome.UNAVAILABLE)
REJECT_FIELDS = ("repr_fp", "scope", "block_key", "payload_bytes", "generation")
QUARANTINE_REASONS = ("torn", "checksum", "conflict")


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reader or writer of a block asks for.

    Attributes:
        generation: the one that the record must carry; None where another process wrote it.
    """

    repr_fp: bytes
    scope: bytes
    block_key: bytes
    payload_bytes: int
    generation: int | None = None


def judge_header(expected: Expected, data: bytes | memoryview) -> Verdict:
    """Whether a header is that of the expected block; its payload is not looked at."""
    try:
        return judge(expected, parse_header(data))
    except MalformedRecord as error:
        return Verdict(Outcome.MISS, error.reason)


def judge(expected: Expected, header: Header) -> Verdict:
    """Whether a header that parsed is that of the expected block."""
    for name in REJECT_FIELDS:
        wanted = getattr(expected, name)
        if wanted is not None and wanted != getattr(header, name):
            return Verdict(Outcome.REJECT, name)
    return USE


def judge_content(header: Header, trailer: Trailer, checksum: int) -> Verdict:
    """Whether the payload, whose xxh3-64 is `checksum`, is the one that its header was written for.

    A torn read shows in ends that differ; damage in a checksum that differs from both.
    """
    if (trailer.generation, trailer.checksum) != (header.generation, header.checksum):
        return Verdict(Outcome.QUARANTINE, "torn")
    if checksum != header.checksum:
        return Verdict(Outcome.QUARANTINE, "checksum")
    return USE


def judge_rewrite(stored: Header, offered: Header) -> Verdict:
    """Whether a record may be stored where one lies already.

    Equal keys mean equal contents up to rounding, so the first stays and the offer is dropped
    (miss: nothing to do). Another size or kind under the same key means that one of them lies.
    """
    same = (stored.kind, stored.num_tokens, stored.payload_bytes, stored.repr_fp, stored.scope)
    if same == (
        offered.kind, offered.num_tokens, offered.payload_bytes, offered.repr_fp, offered.scope,
    ):  # fmt: skip
        return Verdict(Outcome.MISS, "stored")
    return Verdict(Outcome.QUARANTINE, "conflict")
