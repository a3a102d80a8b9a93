"""The worker's probe against a real Unix socket."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from chiasm_contract import probe


def serve_once(path: Path, answer: bytes) -> threading.Thread:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", None),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "503 Service Unavailable"),
        (b"", "answered ''"),
    ],
)
def test_only_200_is_healthy(tmp_path: Path, answer: bytes, problem: str | None) -> None:
    server = serve_once(tmp_path / "worker.sock", answer)
    said = probe.check(str(tmp_path / "worker.sock"), "/health")
    server.join()
    assert said is None if problem is None else problem in (said or "")


def test_no_socket_is_a_failure_with_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chiasm_contract.probe", str(tmp_path / "none"), "/health"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "does not answer" in ran.stderr


def test_it_imports_nothing_heavy() -> None:
    script = (
        "import sys, chiasm_contract.probe\n"
        "print([name for name in sys.modules if name.split('.')[0] in {'pydantic', 'asyncio'}])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
