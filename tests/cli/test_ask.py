"""`chiasm ask`: the answer, and a sentence for everything that can be wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from chiasm_cli.ask import ask
from chiasm_cli.errors import CliError
from chiasm_contract.config import Detail
from chiasm_contract.errors import InvalidRequest
from chiasm_contract.messages import ImagePart, TokenEvent
from chiasm_contract.tenants import TenantKeys

from tests.sidecar.conftest import Pod, StartPod, cut, png


@pytest.fixture
async def pod(start_pod: StartPod) -> Pod:
    return await start_pod()


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "disc.jpg"
    path.write_bytes(png(kind="JPEG"))
    return path


async def asked(url: str, image: Path, detail: Detail = "auto", api_key: str = "") -> str:
    pieces = ask(url, image, "What is it?", detail, api_key)
    return await asyncio.to_thread(lambda: "".join(pieces))


async def test_answer(pod: Pod, picture: Path) -> None:
    assert await asked(pod.url + "/", picture) == "red disc"
    head, files = pod.worker.requests[-1]
    assert files.images == (png(kind="JPEG"),)
    assert head.sampling.temperature == 0
    assert head.messages[0].content[1].text == "What is it?"  # type: ignore[union-attr]


async def test_detail(pod: Pod, picture: Path) -> None:
    for detail in ("auto", "low", "high"):
        await asked(pod.url, picture, detail)
        head, _ = pod.worker.requests[-1]
        assert head.messages[0].content[0] == ImagePart(index=0, detail=detail)


async def test_a_key_is_sent_with_every_request(
    start_pod: StartPod, picture: Path, tmp_path: Path
) -> None:
    keys, server_key = tmp_path / "keys.env", tmp_path / "server-key"
    keys.write_text("acme=acme-key-0123456789\n")
    server_key.write_text("s" * 32)
    pod = await start_pod(tenants=TenantKeys(keys_path=keys, server_key_path=server_key))
    assert await asked(pod.url, picture, api_key="acme-key-0123456789") == "red disc"
    with pytest.raises(CliError, match="No API key was sent"):
        await asked(pod.url, picture)
    with pytest.raises(CliError, match="The API key is wrong"):
        await asked(pod.url, picture, api_key="wrong")


@pytest.mark.parametrize("key", ["secret-\n", "secret key", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_not_repeated(picture: Path, key: str) -> None:
    with pytest.raises(CliError, match="the API key holds blanks") as caught:
        list(ask("http://127.0.0.1:1", picture, "?", "auto", key))
    assert key not in str(caught.value)


async def test_the_servers_words_reach_the_person(pod: Pod, picture: Path) -> None:
    pod.worker.refusal = InvalidRequest("The picture is truncated.")
    with pytest.raises(CliError, match=r"^The picture is truncated\.$"):
        await asked(pod.url, picture)


async def test_server_that_is_not_ready(start_pod: StartPod, picture: Path) -> None:
    pod = await start_pod(wait_for="IdentityMismatch", expected_identity={"a": 1})
    with pytest.raises(CliError, match=r"not ready: The model is not the expected one"):
        await asked(pod.url, picture)


async def test_answer_that_breaks_off(pod: Pod, picture: Path) -> None:
    pod.worker.answer = (TokenEvent(text="red", token_ids=(1,)), cut)
    with pytest.raises(CliError, match="ask again"):
        await asked(pod.url, picture)


def refused(url: str, image: Path) -> str:
    with pytest.raises(CliError) as caught:
        list(ask(url, image, "?"))
    return str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:99999", ""])
def test_wrong_address(url: str, picture: Path) -> None:
    assert "is not an address" in refused(url, picture)


def test_nobody_answers(picture: Path) -> None:
    with socket.socket() as taken:  # bound, not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        words = refused(f"http://127.0.0.1:{taken.getsockname()[1]}", picture)
    assert "nothing answers at http://127.0.0.1:" in words
    assert "chiasm serve demo" in words


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"<html>", "not with a list of models"), (b"{}", "not with a list of models")],
)
def test_another_kind_of_server(picture: Path, body: bytes, words: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        assert words in refused(f"http://127.0.0.1:{server.server_address[1]}", picture)
        thread.join()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_text("hello"), "is not a picture"),
        (lambda path: path.write_bytes(b""), "is not a picture"),
    ],
)
def test_not_a_picture(tmp_path: Path, make: Callable[[Path], object], words: str) -> None:
    path = tmp_path / "thing.png"
    make(path)
    assert words in refused("http://127.0.0.1:1", path)
    assert str(path) in refused("http://127.0.0.1:1", path)
