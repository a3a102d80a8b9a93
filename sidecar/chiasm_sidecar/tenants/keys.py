"""From API keys to tenants, and from a tenant to the scope of its cached vectors.

A tenant has one or several keys, a line each: the key itself, or `sha256:` and the 64 hex digits of
its sha256. Two lines are how a key is replaced: the new one is added, clients change over, the old
one goes. No two tenants share a key. Keys and hashes never appear in a message; tenants' names do.

Must not know: files, clocks, headers. Pure functions of their arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from chiasm_contract.fingerprint import SHARED, scope_fp

MIN_SERVER_KEY_BYTES = 32

NAMES_ALLOWED = "Tenants' names are 1 to 253 letters, digits and - . _"

_NAME = re.compile(r"[-._A-Za-z0-9]{1,253}")
_KEY = re.compile(r"[!-~]{16,512}")
_HASHED = re.compile(r"sha256:([0-9a-f]{64})")


class KeysRefused(ValueError):
    """The keys cannot be used; the message names the tenant and what is allowed, never a key."""


@dataclass(frozen=True)
class Tenant:
    """Who a key belongs to; `scope_fp` is what the worker gets to know of it."""

    name: str
    scope_fp: str


@dataclass(frozen=True)
class KeyRing:
    """Every key that is accepted, as sha256 digests."""

    tenants: tuple[tuple[bytes, Tenant], ...] = field(repr=False)

    def find(self, key: str) -> Tenant | None:
        """The tenant whose key this is; takes as long for a wrong key as for a right one."""
        digest = hashlib.sha256(key.encode()).digest()
        found = None
        for known, tenant in self.tenants:
            if hmac.compare_digest(known, digest):
                found = tenant
        return found


def key_ring(entries: Mapping[str, str], server_key: bytes) -> KeyRing:
    """The ring of `entries`: tenant name -> its keys, a line each.

    Raises: KeysRefused for a name, a key or a server key of the wrong form, and for a key of two.
    """
    if len(server_key) < MIN_SERVER_KEY_BYTES:
        raise KeysRefused(
            f"The server key has {len(server_key)} bytes; it takes at least "
            f"{MIN_SERVER_KEY_BYTES}, such as `openssl rand -hex 32` writes."
        )
    owners: dict[bytes, Tenant] = {}
    for name, lines in sorted(entries.items()):
        if not is_name(name):
            raise KeysRefused(f"A tenant's name of {len(name)} characters is none. {NAMES_ALLOWED}")
        tenant = Tenant(name, _scope(server_key, name))
        for digest in _digests(name, lines):
            other = owners.setdefault(digest, tenant)
            if other is not tenant:
                raise KeysRefused(
                    f"Tenants {other.name!r} and {name!r} have the same API key; give each its own."
                )
    return KeyRing(tuple(owners.items()))


def is_name(name: str) -> bool:
    """Whether a tenant may be called so. What is no name may be a key: it must not be shown."""
    return _NAME.fullmatch(name) is not None


def _scope(server_key: bytes, name: str) -> str:
    """Nobody without the server key can tell or make the scope of a name."""
    mac = hmac.new(server_key, name.encode(), hashlib.sha256).hexdigest()
    return scope_fp(SHARED.model_copy(update={"tenant": mac}))


def _digests(name: str, lines: str) -> list[bytes]:
    keys = [line.strip() for line in lines.splitlines() if line.strip()]
    if not keys:
        raise KeysRefused(f"Tenant {name!r} has no API key; add one, or remove the tenant.")
    return [_digest(name, key) for key in keys]


def _digest(name: str, key: str) -> bytes:
    hashed = _HASHED.fullmatch(key)
    if hashed:
        return bytes.fromhex(hashed[1])
    if key.startswith("sha256:") or not _KEY.fullmatch(key):
        raise KeysRefused(
            f"Tenant {name!r} has an API key of {len(key)} characters that cannot be used; a line "
            "is 16 to 512 visible ASCII characters, or sha256: and 64 lower-case hex digits."
        )
    return hashlib.sha256(key.encode()).digest()
