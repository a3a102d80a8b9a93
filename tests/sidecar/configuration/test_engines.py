"""Other ways to the server: engines without a Valkey behind them, TLS, namespaces."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.sidecar.configuration.baos import Bao
from tests.sidecar.configuration.conftest import FAST, Place, StartPod, became
from tests.sidecar.configuration.test_kv import KV
from tests.sidecar.conftest import until
from tests.sidecar.kv.valkeys import certificates, way_to

RABBIT = {"name": "app", "kind": "rabbitmq", "mount": "rabbitmq", "entry": "app", "leased": True}


@contextlib.contextmanager
def rabbit() -> Iterator[tuple[str, set[str]]]:
    """The part of RabbitMQ's management API by which the engine makes users; its users."""
    users: set[str] = set()

    class Management(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            _, _, what, name, *_ = [*self.path.split("/"), "", ""]
            if what == "users" and self.command == "PUT":
                users.add(name)
            elif what == "users" and self.command == "DELETE":
                users.discard(name)
            self.send_response(204)
            self.end_headers()

        do_PUT = do_DELETE = do_GET = _answer

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Management)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", users
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_users_of_a_rabbitmq_are_lent_renewed_replaced_and_ended(
    place: Place, start: StartPod, bao: Bao
) -> None:
    admin = bao.admin
    with rabbit() as (address, users):
        admin.sys.enable_secrets_engine("rabbitmq")
        try:
            login = {"username": "root", "password": "root", "verify_connection": False}
            admin.write_data(
                "rabbitmq/config/connection", data={"connection_uri": address, **login}
            )
            admin.write_data("rabbitmq/config/lease", data={"ttl": "60s", "max_ttl": "120s"})
            admin.write_data(
                "rabbitmq/roles/app", data={"vhosts": '{"/": {"write": ".*", "read": ".*"}}'}
            )
            bao.allow('path "rabbitmq/creds/app" { capabilities = ["read"] }')
            place.approve()
            config = place.config(
                RABBIT, vault=place.vault(bao.address), approvals_path=place.approvals_path
            )
            pod = await start(config)
            report = pod.report()
            assert report.lease is not None
            assert report.lease.renewable
            assert 110 < report.lease.ttl_seconds <= 120
            (first,) = users
            assert (place.current / "app" / "username").read_text() == first
            place.approve(asked="now")
            await became(pod, rotations=1, old_leases=0)
            (second,) = users
            assert second != first
            await pod.desk.__aexit__(None, None, None)

            async def none_left() -> bool:
                return not users

            await until(none_left)
        finally:
            admin.sys.disable_secrets_engine("rabbitmq")


async def test_a_server_is_known_by_its_authority(place: Place, start: StartPod, bao: Bao) -> None:
    bao.put(a="1")
    context, authority = certificates(place.folder)
    async with way_to(bao.port, context) as way:
        address = f"https://127.0.0.1:{way.port}"
        pod = await start(place.config(KV, vault=place.vault(address, ca_path=authority)))
        assert pod.report().id is not None
        stranger = Place(place.folder / "stranger")
        pace = replace(FAST, start=1.0)
        other = await start(stranger.config(KV, vault=stranger.vault(address)), pace=pace)
        assert other.report().fault == "its certificate is not vouched for"


async def test_a_namespace_is_asked_in(place: Place, start: StartPod, bao: Bao) -> None:
    bao.put(a="1")
    vault = place.vault(bao.address, namespace="nowhere")
    pod = await start(place.config(KV, vault=vault), pace=replace(FAST, start=1.0))
    assert pod.report().fault in (
        "403 for auth/kubernetes/login",
        "404 for auth/kubernetes/login",
    )
