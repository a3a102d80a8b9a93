"""Which keys are accepted, whose they are, and what a refusal may say."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from chiasm_contract.fingerprint import SHARED_SCOPE_FP, Scope, scope_fp
from chiasm_sidecar.tenants.keys import KeyRing, KeysRefused, key_ring
from hypothesis import given
from hypothesis import strategies as st

SERVER_KEY = b"s" * 32
ACME, GLOBEX = "acme-key-0123456789", "globex-key-01234567"
KEYS = st.text([chr(code) for code in range(33, 127)], min_size=16, max_size=60).filter(
    lambda key: not key.startswith("sha256:")
)
NAMES = st.text("abcXYZ019.-_", min_size=1, max_size=20)


def hashed(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def name_of(ring: KeyRing, key: str) -> str | None:
    tenant = ring.find(key)
    return tenant.name if tenant else None


def test_a_key_is_known_by_itself_or_by_its_hash() -> None:
    ring = key_ring({"acme": ACME, "globex": f"{hashed(GLOBEX)}\n"}, SERVER_KEY)
    assert name_of(ring, ACME) == "acme"
    assert name_of(ring, GLOBEX) == "globex"
    for wrong in ("", "x", ACME + " ", ACME[:-1], hashed(GLOBEX), hashed(GLOBEX)[7:], "é" * 20):
        assert name_of(ring, wrong) is None


def test_a_bare_hash_is_a_key_like_any_other() -> None:
    """The fault: 64 hex digits, which is what people make keys of, are taken for a key's hash."""
    random = "0123456789abcdef" * 4
    assert name_of(key_ring({"acme": random}, SERVER_KEY), random) == "acme"


def test_a_tenant_may_have_an_old_and_a_new_key() -> None:
    ring = key_ring({"acme": f"{ACME}\n\n{hashed(GLOBEX)}\n"}, SERVER_KEY)
    assert ring.find(ACME) == ring.find(GLOBEX)
    assert name_of(ring, ACME) == "acme"


@given(st.dictionaries(NAMES, KEYS, min_size=1, max_size=6))
def test_every_key_finds_its_own_tenant_and_no_other(entries: dict[str, str]) -> None:
    if len(set(entries.values())) < len(entries):
        with pytest.raises(KeysRefused, match="have the same API key"):
            key_ring(entries, SERVER_KEY)
        return
    ring = key_ring(entries, SERVER_KEY)
    assert {name: name_of(ring, key) for name, key in entries.items()} == {n: n for n in entries}
    scopes = {tenant.scope_fp for _, tenant in ring.tenants}
    assert len(scopes) == len(entries)
    assert SHARED_SCOPE_FP not in scopes


def test_the_scope_is_that_of_the_mac_of_the_name() -> None:
    mac = hmac.new(SERVER_KEY, b"acme", hashlib.sha256).hexdigest()
    tenant = key_ring({"acme": ACME}, SERVER_KEY).find(ACME)
    assert tenant is not None
    assert tenant.scope_fp == scope_fp(Scope(tenant=mac, adapter="base", track="stable"))


def test_another_key_of_a_tenant_is_the_same_scope_and_another_server_key_another() -> None:
    first = key_ring({"acme": ACME}, SERVER_KEY).find(ACME)
    rotated = key_ring({"acme": GLOBEX}, SERVER_KEY).find(GLOBEX)
    elsewhere = key_ring({"acme": ACME}, b"t" * 32).find(ACME)
    assert first == rotated
    assert first is not None
    assert elsewhere is not None
    assert first.scope_fp != elsewhere.scope_fp


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"acme": "short-secret"}, "Tenant 'acme' has an API key of 12 characters"),
        ({"acme": "with a space in the middle"}, "an API key of 26 characters"),
        ({"acme": "sha256:" + "A" * 64}, "an API key of 71 characters"),
        ({"acme": "x" * 513}, "an API key of 513 characters"),
        ({"acme": " \n"}, "Tenant 'acme' has no API key"),
        ({"a/b": ACME}, "A tenant's name of 3 characters is none."),
        ({"": ACME}, "A tenant's name of 0 characters is none."),
        ({"acme": ACME, "globex": hashed(ACME)}, "Tenants 'acme' and 'globex' have the same"),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_a_key(
    entries: dict[str, str], words: str
) -> None:
    with pytest.raises(KeysRefused) as refused:
        key_ring(entries, SERVER_KEY)
    assert words in str(refused.value)
    for key in entries.values():
        assert not key.strip() or key.strip() not in str(refused.value)


def test_a_short_server_key_is_refused() -> None:
    with pytest.raises(KeysRefused, match="has 31 bytes; it takes at least 32"):
        key_ring({"acme": ACME}, b"s" * 31)


def test_nothing_shows_a_key() -> None:
    ring = key_ring({"acme": ACME}, SERVER_KEY)
    for secret in (ACME, hashed(ACME)[7:], SERVER_KEY.decode()):
        assert secret not in repr(ring)
