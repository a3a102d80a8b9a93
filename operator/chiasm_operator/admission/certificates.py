"""When the webhook's keys change, and to what: pure steps over what the Secret holds.

    ca.crt    certificates of all authorities that are trusted, the newest last
    ca.key    key of the newest
    tls.crt   what the webhook shows, signed by the newest authority or the one before
    tls.key   its key

One step changes one thing. A new authority is first only trusted; what it signs is shown when the
API server is known to trust it (`published`) and has had time to hear of it. An old authority is
trusted until it expires, so a replica that still shows the old certificate is believed too.
Whoever runs the steps, in any order, from any number of replicas, ends at the same.

Must not know: Kubernetes, clocks (the time is an argument), files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = timedelta(days=730)
SERVING_LIFE = timedelta(days=90)
# What is past this share of its life is replaced.
RENEW_AT = 2 / 3
# So long after it was made a published authority is taken as known to every API server.
SETTLE = timedelta(minutes=10)
_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Keys:
    """What the Secret holds, as PEM."""

    authorities: bytes
    authority_key: bytes = field(repr=False)
    certificate: bytes
    key: bytes = field(repr=False)


def step(keys: Keys | None, hosts: Sequence[str], now: datetime, *, published: bool) -> Keys:
    """`keys` after the one step that is due; the same object when none is.

    `published` says whether the webhook's configuration holds all of `keys.authorities`.
    """
    if keys is None or not _can_sign(keys, now):
        return _anew(hosts, now)
    trusted = x509.load_pem_x509_certificates(keys.authorities)
    newest = trusted[-1]
    alive = [one for one in trusted if one.not_valid_after_utc > now]
    if len(alive) < len(trusted):
        return replace(keys, authorities=_pem(alive))
    shown = _shown(keys, trusted, now)
    if shown is None:  # nothing that could be believed is shown, so there is nothing to wait for
        return _signed_anew(keys, hosts, now)
    if _is_due(newest, now):
        authority, key = _authority(now)
        return replace(keys, authorities=_pem([*trusted, authority]), authority_key=_key_pem(key))
    settled = published and now >= newest.not_valid_before_utc + _CLOCK_SKEW + SETTLE
    wanted = set(hosts) == set(_hosts(shown)) and not _is_due(shown, now)
    if (wanted and _signed_by(shown, newest)) or not (settled or len(trusted) == 1):
        return keys
    return _signed_anew(keys, hosts, now)


def _can_sign(keys: Keys, now: datetime) -> bool:
    """Whether there is a newest authority that is alive, its key, and one that is valid now."""
    try:
        trusted = x509.load_pem_x509_certificates(keys.authorities)
        newest = trusted[-1]
        key = serialization.load_pem_private_key(keys.authority_key, None)
    except (ValueError, TypeError, IndexError):
        return False
    ours = newest.public_key() == key.public_key() and newest.not_valid_after_utc > now
    # One that a clock ahead of ours added does no harm while another is valid.
    return ours and any(one.not_valid_before_utc <= now for one in trusted)


def _shown(
    keys: Keys, trusted: Sequence[x509.Certificate], now: datetime
) -> x509.Certificate | None:
    """The certificate that is shown; None when nobody could believe it."""
    try:
        shown = x509.load_pem_x509_certificate(keys.certificate)
        key = serialization.load_pem_private_key(keys.key, None)
    except (ValueError, TypeError):
        return None
    alive = shown.not_valid_before_utc <= now < shown.not_valid_after_utc
    return (
        shown
        if alive
        and shown.public_key() == key.public_key()
        and any(_signed_by(shown, one) for one in trusted)
        else None
    )


def _anew(hosts: Sequence[str], now: datetime) -> Keys:
    authority, key = _authority(now)
    keys = Keys(_pem([authority]), _key_pem(key), b"", b"")
    return _signed_anew(keys, hosts, now)


def _authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("chiasm webhook authority")
    builder = _builder(name, name, key.public_key(), key.public_key(), now, AUTHORITY_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return builder.sign(key, hashes.SHA256()), key


def _signed_anew(keys: Keys, hosts: Sequence[str], now: datetime) -> Keys:
    authority = x509.load_pem_x509_certificates(keys.authorities)[-1]
    signer = serialization.load_pem_private_key(keys.authority_key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101 - we made it
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("chiasm webhook")
    builder = _builder(
        name, authority.subject, key.public_key(), signer.public_key(), now, SERVING_LIFE
    )
    alternatives = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    builder = builder.add_extension(alternatives, critical=False)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    builder = builder.add_extension(_usage(signs=False), critical=True)
    certificate = builder.sign(signer, hashes.SHA256())
    return replace(keys, certificate=_pem([certificate]), key=_key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs, crl_sign=signs,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _hosts(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return names.value.get_values_for_type(x509.DNSName)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    made = certificate.not_valid_before_utc + _CLOCK_SKEW
    return now >= made + (certificate.not_valid_after_utc - made) * RENEW_AT


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
