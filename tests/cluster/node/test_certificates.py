from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest
import yaml
from chiasm_cluster.node.certificates import Authority, Pair, write_kubeconfig
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store


def certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def test_a_servers_certificate_holds_for_its_names_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    server = certificate(authority.server("api", "kube-apiserver", ["kubernetes", "10.89.0.11"]))
    policy = PolicyBuilder().store(Store([certificate(authority.pair)]))
    policy.build_server_verifier(x509.DNSName("kubernetes")).verify(server, [])
    with pytest.raises(x509.verification.VerificationError):
        policy.build_server_verifier(x509.DNSName("example.com")).verify(server, [])


def test_an_authority_does_not_vouch_for_anothers_clients(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path, "ca"), Authority(tmp_path, "front-proxy-ca")
    client = certificate(other.client("front-proxy", "front-proxy-client"))
    with pytest.raises(x509.verification.VerificationError):
        PolicyBuilder().store(Store([certificate(ours.pair)])).build_client_verifier().verify(
            client, []
        )


def test_user_and_group_are_where_kubernetes_reads_them(tmp_path: Path) -> None:
    pair = Authority(tmp_path, "ca").client("node", "system:node:node-1", "system:nodes")
    assert certificate(pair).subject.rfc4514_string() == "CN=system:node:node-1,O=system:nodes"


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.client("admin", "admin", "system:masters")
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "https://10.89.0.11:6443", authority.pair.certificate, pair, "x")
    for path in (pair.key, authority.pair.key, kubeconfig):
        assert path.stat().st_mode & 0o077 == 0


def test_a_kubeconfig_carries_a_key_that_fits_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.client("admin", "admin", "system:masters")
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "https://10.89.0.11:6443", authority.pair.certificate, pair, "x")
    user = yaml.safe_load(path.read_text())["users"][0]["user"]
    for name, field in (("crt", "client-certificate-data"), ("key", "client-key-data")):
        (tmp_path / f"copy.{name}").write_bytes(base64.b64decode(user[field]))
    ssl.create_default_context().load_cert_chain(tmp_path / "copy.crt", tmp_path / "copy.key")
