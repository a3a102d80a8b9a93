"""The webhook's keys over the years: whatever the order of looks, what is shown is believed."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from chiasm_operator.admission.certificates import (
    AUTHORITY_LIFE,
    SERVING_LIFE,
    SETTLE,
    Keys,
    step,
)
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

HOSTS = ["chiasm-webhook.chiasm-system.svc"]
START = datetime(2026, 1, 1, tzinfo=UTC)


def believed(authorities: bytes, certificate: bytes, now: datetime) -> bool:
    """Whether a client that trusts `authorities` takes `certificate` for the webhook's."""
    store = Store(x509.load_pem_x509_certificates(authorities))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(HOSTS[0]))
    try:
        verifier.verify(x509.load_pem_x509_certificate(certificate), [])
    except x509.verification.VerificationError:
        return False
    return True


def settled(keys: Keys | None, now: datetime, *, published: bool = True) -> Keys:
    """`keys` after every step that is due."""
    for _ in range(10):
        after = step(keys, HOSTS, now, published=published)
        if after is keys:
            return after
        keys = after
    raise AssertionError("the steps never end")


def aged(keys: Keys, until: datetime, *, since: datetime = START) -> Keys:
    """`keys` looked after until then."""
    now = since
    while now < until:
        now = min(until, now + timedelta(days=20))
        keys = settled(keys, now)
    return keys


@pytest.fixture(scope="module")
def first() -> Keys:
    return settled(None, START)


def test_the_first_keys_are_believed(first: Keys) -> None:
    assert believed(first.authorities, first.certificate, START)
    assert settled(first, START + timedelta(days=1)) is first


def test_a_certificate_is_replaced_long_before_it_expires(first: Keys) -> None:
    later = START + SERVING_LIFE * 0.7
    after = settled(first, later)
    assert after.authorities == first.authorities
    assert after.certificate != first.certificate
    assert believed(first.authorities, after.certificate, later)


def test_another_name_is_another_certificate(first: Keys) -> None:
    after = step(first, ["other.chiasm-system.svc"], START, published=True)
    assert after.certificate != first.certificate
    assert after.authorities == first.authorities


def test_a_new_authority_is_trusted_before_it_signs(first: Keys) -> None:
    later = START + AUTHORITY_LIFE * 0.7
    old = aged(first, later - timedelta(days=25))
    both = step(old, HOSTS, later, published=True)
    assert both.authorities.startswith(old.authorities)
    assert both.certificate == old.certificate
    assert settled(both, later) == both, "it has had no time to be heard of"
    unheard = settled(both, later + SETTLE, published=False)
    assert unheard.certificate == old.certificate, "nobody trusts it yet"
    after = settled(both, later + SETTLE)
    assert believed(both.authorities, after.certificate, later + SETTLE)
    assert not believed(old.authorities, after.certificate, later + SETTLE)
    assert believed(after.authorities, old.certificate, later), "another replica still shows it"


def test_an_expired_authority_is_forgotten(first: Keys) -> None:
    later = START + AUTHORITY_LIFE * 0.7
    both = aged(aged(first, later), later + SETTLE)
    kept = aged(both, START + AUTHORITY_LIFE - timedelta(days=1), since=later)
    assert kept.authorities == both.authorities
    alone = settled(kept, START + AUTHORITY_LIFE + timedelta(days=1))
    assert len(x509.load_pem_x509_certificates(alone.authorities)) == 1


@pytest.mark.parametrize("part", ["authorities", "authority_key", "certificate", "key"])
@pytest.mark.parametrize("kind", ["rubbish", "empty", "of another"])
def test_what_does_not_belong_together_is_made_anew(part: str, kind: str, first: Keys) -> None:
    other = settled(None, START)
    value = {"rubbish": b"x", "empty": b"", "of another": getattr(other, part)}[kind]
    broken = replace(first, **{part: value})
    after = settled(broken, START)
    assert believed(after.authorities, after.certificate, START)
    if part.startswith("authorit"):
        assert after.authority_key not in {broken.authority_key, first.authority_key}
    else:
        assert after.authorities == first.authorities


def test_after_a_long_absence_they_are_made_anew(first: Keys) -> None:
    late = START + AUTHORITY_LIFE * 2
    after = settled(first, late)
    assert believed(after.authorities, after.certificate, late)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(days=400)])
def test_what_a_clock_that_was_ahead_has_made_is_made_anew(ahead: timedelta) -> None:
    """Nobody believes it for as long as that, and nothing would say so."""
    early = settled(None, START + ahead)
    assert not believed(early.authorities, early.certificate, START)
    after = settled(early, START)
    assert believed(after.authorities, after.certificate, START)


def test_an_authority_that_a_clock_ahead_has_added_takes_no_belief_away(first: Keys) -> None:
    later = START + AUTHORITY_LIFE * 0.7
    old = aged(first, later - timedelta(days=25))
    both = step(old, HOSTS, later + timedelta(hours=1), published=True)
    after = settled(both, later)
    assert after.authorities == both.authorities
    assert after.certificate == old.certificate


def test_keys_are_never_shown(first: Keys) -> None:
    assert "PRIVATE" not in repr(first)


def test_an_expired_certificate_is_signed_anew_by_the_same_authority(first: Keys) -> None:
    late = START + SERVING_LIFE + timedelta(days=1)
    after = settled(first, late)
    assert after.authorities == first.authorities
    assert believed(first.authorities, after.certificate, late)


@pytest.mark.parametrize("seed", range(2))
def test_the_api_server_always_believes_every_replica(seed: int) -> None:
    """Six years of two replicas: one takes steps when it looks, the other shows what it last read,
    and the API server trusts what it last heard of; each of them is late as it happens."""
    moments = random.Random(seed)
    now = START
    stored = settled(None, now)
    shown, published, heard = stored.certificate, stored.authorities, stored.authorities
    while now < START + 3 * AUTHORITY_LIFE:
        now += timedelta(days=moments.uniform(0, 12))
        for _ in range(12):
            now += SETTLE / 5
            turn = moments.sample(["look", "hear", "read"], 3)
            for what in turn:
                if what == "look":
                    stored = step(stored, HOSTS, now, published=published == stored.authorities)
                    published = stored.authorities
                elif what == "hear":
                    heard = published
                else:
                    shown = stored.certificate
            assert believed(heard, shown, now)
            assert believed(heard, stored.certificate, now)
