"""Which replicas are asked, and from which of them is read. Pure.

Of many replicas a call asks a few: those whose address, digested with what is sought, comes first.
So every replica asks the same few for the same thing, and what one of these has, all find; another
thing is sought elsewhere, so that nobody is asked by everybody for everything; and who comes or
goes moves nothing but its own share.

Must not know: connections, clocks.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Sequence

MAX_ASKED = 16
_RANK_BYTES = 8


def asked_for(addresses: Collection[str], namespace: str, first_key: bytes) -> list[str]:
    """Those to ask for a chain that begins with `first_key`; all, unless they are many."""
    if len(addresses) <= MAX_ASKED:
        return list(addresses)
    seed = hashlib.blake2b(namespace.encode() + b"\0" + first_key, digest_size=16).digest()

    def rank(address: str) -> bytes:
        return hashlib.blake2b(address.encode(), key=seed, digest_size=_RANK_BYTES).digest()

    return heapq.nsmallest(MAX_ASKED, addresses, key=rank)


def share(having: Sequence[Collection[int]], count: int) -> list[list[int]]:
    """For each replica the records to read from it, of those that it has, as evenly as can be."""
    chosen: list[list[int]] = [[] for _ in having]
    for at in range(count):
        holders = [number for number, records in enumerate(having) if at in records]
        if holders:
            chosen[min(holders, key=lambda number: len(chosen[number]))].append(at)
    return chosen
