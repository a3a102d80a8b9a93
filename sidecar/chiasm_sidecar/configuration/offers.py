"""What a source offers, and what of it a running pod takes. Pure.

Ids of values are keyed digests: the same in every pod that has the same key, and nobody without it
can try whether a value is the one.

An entry that may change while the pod runs is taken as offered. One that needs a restart, or is
only for pods that start later, stays what it was when the pod began: absent, if it was absent.

Must not know: files, clocks, the server.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract.configuration import ConfigSource, OnChange

Entries = Mapping[str, bytes]

_ENTRY = re.compile(r"(?!\.\.)[-._A-Za-z0-9]{1,253}")
MAX_BYTES = 2**20  # a Secret has no more
_NUM_DIGITS = 16


class SourceFault(Exception):
    """A source could not be asked, or what it says cannot be used: the kind, never a value."""


@dataclass(frozen=True)
class Offer:
    """What is there now."""

    id: str
    entries: Entries = field(repr=False)


def checked(entries: Entries) -> Entries:
    """The same entries, if each can be a file.

    Raises: SourceFault.
    """
    for name in entries:
        if not _ENTRY.fullmatch(name):
            # The name may be a key that was put in the wrong place: it is not shown.
            raise SourceFault(
                f"an entry's name of {len(name)} characters is no file's: 1 to 253 letters, "
                "digits and - . _ are, not beginning with two dots"
            )
    if sum(map(len, entries.values())) > MAX_BYTES:
        raise SourceFault(f"the entries have more than {MAX_BYTES} bytes together")
    return entries


def of_kind(source: ConfigSource, entries: Entries, kind: OnChange) -> dict[str, bytes]:
    """The entries whose change does that."""
    return {key: value for key, value in entries.items() if source.on(key) == kind}


def taken(source: ConfigSource, first: Entries | None, offered: Entries) -> dict[str, bytes]:
    """What the pod has once the offer is taken; `first`: what it has now, None: nothing yet."""
    if first is None:
        return dict(offered)
    kept = {key: value for key, value in first.items() if source.on(key) != "reload"}
    return of_kind(source, offered, "reload") | kept


def digest(key: bytes, entries: Entries) -> str:
    """A keyed digest of names and values; each with its length, so that no two lists are alike."""
    mac = hmac.new(key, b"chiasm-config-1", "sha256")
    for name, value in sorted(entries.items()):
        for part in (name.encode(), value):
            mac.update(len(part).to_bytes(8, "big") + part)
    return mac.hexdigest()[:_NUM_DIGITS]
