"""A worker and a peer that are slow, die, and come back: asked again a bounded number of times."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from chiasm_contract.clients import ClientSettings
from chiasm_contract.messages import GenerateHead, IdentityReport, MediaFiles
from chiasm_sidecar.traffic.handover import OF_CANARY, OF_LAST, Handover, NotAnswered
from chiasm_sidecar.traffic.routing import Place
from chiasm_sidecar.worker_client import WorkerClient, WorkerGone

HEAD = GenerateHead.model_validate(
    {"request_id": "1", "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}]}]}
)
WHO = IdentityReport(compute_fp="c", repr_fp="r", incarnation="1", fields={})
QUICK = ClientSettings(backoff_first_seconds=0.01, backoff_max_seconds=0.02)
HEADERS = {"x-request-id": "mine"}


class Peer:
    """Hangs up on the first requests, then answers."""

    def __init__(self, num_lost: int) -> None:
        self.num_lost = num_lost
        self.num_asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.num_asked += 1
        if self.num_asked > self.num_lost:
            await reader.read(1)  # some of the body
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-chiasm-incarnation: 1\r\n"
                b"x-chiasm-compute-fp: c\r\n\r\n"
            )
        writer.close()


@asynccontextmanager
async def dying_worker(path: Path, num_lost: int) -> AsyncIterator[Peer]:
    peer = Peer(num_lost)
    async with await asyncio.start_unix_server(peer.serve, path):
        yield peer


async def answered(path: Path, clients: ClientSettings) -> None:
    async with (
        WorkerClient(path, clients) as worker,
        worker.generate(HEAD, MediaFiles(), WHO),
    ):
        pass


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_a_worker_that_dies_is_asked_again_so_often_and_no_more(
    retries: int, tmp_path: Path
) -> None:
    clients = QUICK.model_copy(update={"worker_retries": retries})
    async with dying_worker(tmp_path / "s", num_lost=100) as peer:
        with pytest.raises(WorkerGone) as gone:
            await answered(tmp_path / "s", clients)
        assert gone.value.reason == "cut"
        assert peer.num_asked == retries + 1
    async with dying_worker(tmp_path / "t", num_lost=retries) as peer:
        await answered(tmp_path / "t", clients)
        assert peer.num_asked == retries + 1


async def test_a_worker_that_comes_back_meanwhile_answers(tmp_path: Path) -> None:
    clients = ClientSettings(
        worker_retries=10, backoff_first_seconds=0.05, backoff_max_seconds=0.1, backoff_jitter=0
    )
    asking = asyncio.create_task(answered(tmp_path / "s", clients))
    await asyncio.sleep(0.1)
    assert not asking.done()
    async with dying_worker(tmp_path / "s", num_lost=0):
        await asking


async def test_a_worker_that_never_comes_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(WorkerGone) as gone:
        await answered(tmp_path / "s", QUICK)
    assert gone.value.reason == "unreachable"


async def test_a_slow_worker_is_given_up_in_the_time_that_is_set(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    clients = ClientSettings(worker_timeout_seconds=0.1)
    async with (
        await asyncio.start_unix_server(silent, tmp_path / "s"),
        WorkerClient(tmp_path / "s", clients) as worker,
    ):
        with pytest.raises(WorkerGone) as gone:
            await worker.health()
        assert gone.value.reason == "timeout"
        await ended.wait()


@asynccontextmanager
async def dying_peer(num_lost: int) -> AsyncIterator[tuple[Place, Peer]]:
    peer = Peer(num_lost)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield Place("v1-stable", f"{host}:{port}"), peer


async def handed_over(place: Place, clients: ClientSettings, is_last: bool) -> None:
    taken = OF_LAST if is_last else OF_CANARY
    async with Handover(clients) as handover, handover.ask(place, b"body", HEADERS, taken):
        pass


@pytest.mark.parametrize(
    ("is_last", "asked"), [(True, 4), (False, 2)], ids=["nobody else could", "another one could"]
)
async def test_a_revision_that_dies_is_asked_again_where_nobody_else_could_answer(
    is_last: bool, asked: int
) -> None:
    clients = QUICK.model_copy(update={"peer_retries": 3})
    async with dying_peer(num_lost=100) as (place, peer):
        with pytest.raises(NotAnswered):
            await handed_over(place, clients, is_last)
        assert peer.num_asked == asked


async def test_a_revision_that_comes_back_meanwhile_answers() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    clients = ClientSettings(
        peer_retries=10, backoff_first_seconds=0.05, backoff_max_seconds=0.1, backoff_jitter=0
    )
    place = Place("v1-stable", f"127.0.0.1:{port}")
    asking = asyncio.create_task(handed_over(place, clients, is_last=True))
    await asyncio.sleep(0.1)
    assert not asking.done()
    async with await asyncio.start_server(Peer(0).serve, "127.0.0.1", port):
        await asking


async def test_one_that_is_gone_is_left_at_once_where_another_can_answer() -> None:
    place = Place("v1-canary", "127.0.0.1:1")
    clients = ClientSettings(peer_retries=10, backoff_first_seconds=10, backoff_max_seconds=60)
    with pytest.raises(NotAnswered):
        async with asyncio.timeout(5):  # less than one pause
            await handed_over(place, clients, is_last=False)
