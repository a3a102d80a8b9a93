"""The webhook over real TLS, and the upkeep of its keys beside another replica."""

from __future__ import annotations

import asyncio
import base64
import io
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from chiasm_contract import names
from chiasm_operator.admission.certificates import SERVING_LIFE, Keys, step
from chiasm_operator.admission.server import MAX_BODY_BYTES, PATH, WebhookServer
from chiasm_operator.admission.upkeep import LOOK_SECONDS, SOON_SECONDS, KeyUpkeep
from chiasm_operator.own_objects import WebhookNames

NOW = datetime.now(UTC)
HOST = "w.n.svc"
NAMES = WebhookNames("n", "w", "w", "c")
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u", "kind": {"kind": "Pod"}},
}


@pytest.fixture
def keys() -> Keys:
    return step(None, [HOST], NOW, published=True)


@pytest.fixture
async def server() -> AsyncIterator[WebhookServer]:
    made = WebhookServer("127.0.0.1", 0)
    yield made
    await made.close()


async def ask(server: WebhookServer, keys: Keys, **body: Any) -> tuple[int, Any]:
    trust = ssl.create_default_context(cadata=keys.authorities.decode())
    url = f"https://127.0.0.1:{server.port}{PATH}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, ssl=trust, server_hostname=HOST, **body) as response,
    ):
        return response.status, await response.json()


async def test_a_review_is_answered_under_the_services_name(
    server: WebhookServer, keys: Keys
) -> None:
    await server.show(keys)
    status, said = await ask(server, keys, json=REVIEW)
    assert (status, said["response"]) == (200, {"uid": "u", "allowed": True})


@pytest.mark.parametrize("body", [{"data": b"{"}, {"json": {}}, {"data": b"\xff"}])
async def test_anything_else_is_a_clients_fault(
    body: dict[str, Any], server: WebhookServer, keys: Keys
) -> None:
    await server.show(keys)
    status, said = await ask(server, keys, **body)
    assert status == 400
    assert said["message"]


@pytest.mark.parametrize(
    "request_",
    [
        {"uid": "u", "kind": "Pod"},
        {"uid": "u", "kind": None},
        {"uid": "u", "kind": {"kind": names.KIND}, "object": {}},
        {"uid": "u", "kind": {"kind": names.KIND}, "object": {"metadata": {"annotations": 1}}},
    ],
)
async def test_a_request_of_another_shape_leaves_a_line_and_no_traceback(
    request_: Any, server: WebhookServer, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    await server.show(keys)
    status, said = await ask(server, keys, json={**REVIEW, "request": request_})
    assert status == 500
    assert said["message"].startswith("The review failed, which is a bug")
    (line,) = [each for each in caplog.records if each.levelname in {"WARNING", "ERROR"}]
    assert "a review failed" in line.getMessage()
    assert line.exc_info is None


async def test_too_deep_a_body_is_a_clients_fault(server: WebhookServer, keys: Keys) -> None:
    await server.show(keys)
    status, _ = await ask(server, keys, data=b"[" * 1_000_000)
    assert status == 400


async def test_too_long_a_body_is_a_clients_fault(server: WebhookServer, keys: Keys) -> None:
    await server.show(keys)
    status, _ = await ask(server, keys, data=io.BytesIO(b" " * (MAX_BODY_BYTES + 1)))
    assert status == 413


async def test_who_stops_sending_is_not_waited_for(
    server: WebhookServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chiasm_operator.admission.server.BODY_SECONDS", 0.05)
    await server.show(keys)

    async def stops() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(3600)

    status, said = await ask(server, keys, data=stops())
    assert status == 408
    assert said["message"]


async def test_a_port_that_is_taken_is_had_once_it_is_free(keys: Keys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        server = WebhookServer("127.0.0.1", port)
        for _ in range(2):
            with pytest.raises(OSError, match="in use"):
                await server.show(keys)
            assert server.port is None
    await server.show(keys)
    assert (await ask(server, keys, json=REVIEW))[0] == 200
    await server.close()


async def test_new_keys_are_shown_without_a_restart(server: WebhookServer, keys: Keys) -> None:
    await server.show(keys)
    port = server.port
    other = step(None, [HOST], NOW, published=True)
    await server.show(other)
    assert server.port == port
    assert (await ask(server, other, json=REVIEW))[0] == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await ask(server, keys, json=REVIEW)


@dataclass
class Objects:
    """Stands where the API server stands: one Secret, one configuration, both with versions."""

    names: WebhookNames = NAMES
    data: dict[str, str] = field(default_factory=dict)
    version: int = 1
    bundle: bytes = b""
    rival: Any = None  # what another replica does between our look and our step

    async def read_secret(self) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.data)}

    async def write_secret(self, stored: Any, data: dict[str, bytes]) -> bool:
        rival, self.rival = self.rival, None
        if rival is not None:
            await rival()
        if stored["metadata"]["resourceVersion"] != str(self.version):
            return False
        self.version += 1
        self.data = {name: base64.b64encode(value).decode() for name, value in data.items()}
        return True

    async def read_configuration(self) -> tuple[str, bytes]:
        return "1", self.bundle

    async def publish(self, _: str, authorities: bytes) -> bool:
        self.bundle = authorities
        return True


class Shown:
    """Stands where the server stands."""

    keys: Keys | None = None

    async def show(self, keys: Keys) -> None:
        self.keys = keys


def replica(objects: Objects, now: datetime = NOW) -> tuple[KeyUpkeep, Shown]:
    shown = Shown()
    return KeyUpkeep(objects, shown, lambda: now), shown  # type: ignore[arg-type]


async def test_two_replicas_agree_on_the_first_keys() -> None:
    objects = Objects()
    first, first_shown = replica(objects)
    second, second_shown = replica(objects)
    objects.rival = second.look
    assert await first.look() == SOON_SECONDS
    assert first_shown.keys is None, "the other one was quicker"
    assert await first.look() == LOOK_SECONDS
    assert first_shown.keys == second_shown.keys
    assert first_shown.keys is not None
    assert objects.bundle == first_shown.keys.authorities


async def test_a_step_in_time_reaches_everybody() -> None:
    objects = Objects()
    await replica(objects)[0].look()
    before = dict(objects.data)
    later, shown = replica(objects, NOW + SERVING_LIFE * 0.7)
    assert await later.look() == SOON_SECONDS
    assert await later.look() == LOOK_SECONDS
    assert objects.data["tls.crt"] != before["tls.crt"]
    assert objects.data["ca.crt"] == before["ca.crt"]
    other, other_shown = replica(objects, NOW + SERVING_LIFE * 0.7 + timedelta(minutes=1))
    assert await other.look() == LOOK_SECONDS
    assert other_shown.keys == shown.keys


async def test_an_emptied_bundle_is_filled_again() -> None:
    """As by a tool that replaces the whole configuration with the chart's."""
    objects = Objects()
    upkeep, shown = replica(objects)
    await upkeep.look()
    assert await upkeep.look() == LOOK_SECONDS
    before, objects.bundle = dict(objects.data), b""
    assert await upkeep.look() == SOON_SECONDS
    assert shown.keys is not None
    assert objects.bundle == shown.keys.authorities
    assert objects.data == before
    assert await upkeep.look() == LOOK_SECONDS
