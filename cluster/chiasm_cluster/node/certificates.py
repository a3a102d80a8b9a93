"""Certificates and kubeconfigs of one cluster, made once per cluster and never shared.

One authority signs clients and servers, a second one only the API server's identity towards
aggregated API servers (a client of the first must not pass for it).
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as files `NAME.crt` and `NAME.key`."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, folder: Path, name: str) -> Pair:
        """The pair `name` in `folder`."""
        return cls(folder / f"{name}.crt", folder / f"{name}.key")


def private_key() -> ec.EllipticCurvePrivateKey:
    """A new key."""
    return ec.generate_private_key(ec.SECP256R1())


def write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Write `key` so that only its owner can read it."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def write_public_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Write the public half of `key`."""
    path.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


class Authority:
    """Signs certificates and writes them into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.pair = Pair.named(folder, name)
        self._key = private_key()
        self._name = _subject(f"chiasm {name}")
        usage = _key_usage(signs_certificates=True)
        builder = _builder(self._name, self._name, self._key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._write(self.pair, builder.add_extension(usage, critical=True), self._key)

    def client(self, name: str, user: str, group: str | None = None) -> Pair:
        """A certificate that lets its holder act as `user` of `group`."""
        return self._issue(name, _subject(user, group), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def server(self, name: str, user: str, hosts: list[str], group: str | None = None) -> Pair:
        """A certificate for a server reached as one of `hosts` (names or addresses)."""
        return self._issue(name, _subject(user, group), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def _issue(
        self, name: str, subject: x509.Name, purpose: x509.ObjectIdentifier, hosts: list[str]
    ) -> Pair:
        key = private_key()
        builder = _builder(subject, self._name, key)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        pair = Pair.named(self._folder, name)
        self._write(pair, builder, key)
        return pair

    def _write(
        self, pair: Pair, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
    ) -> None:
        # Strict verifiers (Python 3.13's default) insist on the two key identifiers.
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        its = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(ours, critical=False).add_extension(its, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_key(key, pair.key)


def write_kubeconfig(path: Path, server: str, authority: Path, client: Pair, name: str) -> None:
    """Write a kubeconfig that carries its certificates within itself."""

    def data(source: Path) -> str:
        return base64.b64encode(source.read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": data(authority)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": data(client.certificate),
                    "client-key-data": data(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))


def _subject(user: str, group: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
