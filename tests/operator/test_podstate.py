"""Asking sidecars, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from chiasm_contract import names
from chiasm_contract.messages import PodState
from chiasm_operator.podstate import PodStates


def pod(name: str, address: str | None) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"podIP": address} if address else {}}


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Any]]:
    """Starts a server for /state; gives its port."""
    runners = []

    async def start(handler: Callable[[web.Request], Any]) -> int:
        app = web.Application()
        app.add_routes([web.get("/state", handler)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port: int = runner.addresses[0][1]
        return port

    yield start
    for runner in runners:
        await runner.cleanup()


async def ask(port: int, *pods: dict[str, Any]) -> dict[str, PodState]:
    states = PodStates(port)
    try:
        return dict(await states.ask(pods))
    finally:
        await states.close()


async def test_the_state_of_a_pod_that_is_not_ready_is_read(
    serve: Callable[..., Any], make_state: Callable[..., PodState]
) -> None:
    state = make_state(reason="IdentityMismatch", message="dtype.", dtype="float32")

    async def handler(_: web.Request) -> web.Response:
        return web.json_response(text=state.model_dump_json())

    port = await serve(handler)
    found = await ask(port, pod("here", "127.0.0.1"), pod("without-address", None))
    assert found == {"here": state}


async def test_a_state_that_comes_in_pieces_is_read_whole(
    serve: Callable[..., Any], make_state: Callable[..., PodState]
) -> None:
    state = make_state(dtype="float32")
    body = state.model_dump_json().encode()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = len(body)
        await response.prepare(request)
        for start in range(0, len(body), 100):
            await response.write(body[start : start + 100])
            await asyncio.sleep(0.01)
        return response

    assert await ask(await serve(handler), pod("slow", "127.0.0.1")) == {"slow": state}


async def test_a_state_without_an_end_is_none(serve: Callable[..., Any]) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(4):
                await response.write(b" " * 2**20)
        return response

    assert await ask(await serve(handler), pod("endless", "127.0.0.1")) == {}


@pytest.mark.parametrize("body", ["", "<html>", '{"ready": true}'])
async def test_nonsense_is_no_state(serve: Callable[..., Any], body: str) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text=body)

    assert await ask(await serve(handler), pod("odd", "127.0.0.1")) == {}


async def test_an_unreachable_pod_does_not_hide_the_others(
    serve: Callable[..., Any], make_state: Callable[..., PodState]
) -> None:
    state = make_state()

    async def handler(_: web.Request) -> web.Response:
        return web.json_response(text=state.model_dump_json())

    app_port = await serve(handler)
    found = await ask(app_port, pod("quick", "127.0.0.1"), pod("gone", "127.0.0.3"))
    assert found == {"quick": state}


@pytest.mark.parametrize(
    ("host", "written"), [("10.0.0.1", "10.0.0.1:9"), ("fd00::1", "[fd00::1]:9")]
)
def test_an_address_of_either_version_has_its_port(host: str, written: str) -> None:
    assert names.host_port(host, 9) == written
