"""`chiasm serve` as a person runs it: the real engine, the demo model, Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest

from tests.sidecar.conftest import data_url, png, question

CHIASM = [sys.executable, "-m", "chiasm_cli"]
PATIENCE_SECONDS = 150


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


@dataclass
class Served:
    process: subprocess.Popen[str]
    url: str
    scratch: Path
    output: Path

    def said(self) -> str:
        return self.output.read_text()

    def children(self) -> list[int]:
        """Processes started by the command that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if entry.name.isdigit() and str(self.scratch) in command:
                found.append(int(entry.name))
        return found


@contextmanager
def serving(tmp_path: Path, *arguments: str) -> Iterator[Served]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    output = tmp_path / "output"
    port = free_port()
    command = [*CHIASM, "serve", *arguments, "--port", str(port)]
    with output.open("w") as out:
        process = subprocess.Popen(
            [*command, "--metrics-port", str(free_port())],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch), "CHIASM_LOG_LEVEL": "WARNING"},
        )
    served = Served(process, f"http://127.0.0.1:{port}", scratch, output)
    try:
        yield served
    finally:
        process.kill()
        process.wait()
        for child in served.children():
            os.kill(child, signal.SIGKILL)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("this never came about")
        time.sleep(0.05)


def test_serve_ask_and_end(tmp_path: Path) -> None:
    with serving(tmp_path, "demo", "--kv-cache-bytes", str(2**24)) as served:
        wait_for(lambda: "Ctrl-C ends it" in served.said() or served.process.poll() is not None)
        assert f"demo is served at {served.url} " in served.said()
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="-", max_retries=0) as client:
            body = question(data_url(png(168, 168)), temperature=0, max_tokens=4)
            answer = client.chat.completions.create(**body)
        assert answer.choices[0].message.content is not None
        assert answer.system_fingerprint

        picture = Path(__file__).resolve().parents[2] / "demo" / "pictures" / "shelf-01.png"
        asked = subprocess.run(
            [*CHIASM, "ask", "--url", served.url, str(picture), "How many circles are there?"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert asked.stdout.strip()
        assert asked.stderr == ""

        assert len(served.children()) == 2
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(PATIENCE_SECONDS) == 0
        assert served.said().rstrip().endswith("Stopping.")
        assert served.children() == []
        assert not list(served.scratch.glob("chiasm-*"))


def test_only_who_has_a_key_is_answered_and_no_key_is_left_behind(tmp_path: Path) -> None:
    keys = tmp_path / "keys.env"
    keys.write_text("acme=acme-key-0123456789\n")
    with serving(
        tmp_path, "demo", "--kv-cache-bytes", str(2**24), "--api-keys", str(keys)
    ) as served:
        wait_for(lambda: "Ctrl-C ends it" in served.said() or served.process.poll() is not None)
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="-", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                client.models.list()
            mine = client.with_options(api_key="acme-key-0123456789")
            assert [model.id for model in mine.models.list()] == ["demo"]
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(PATIENCE_SECONDS) == 0
        assert not list(served.scratch.glob("chiasm-*"))
        assert "acme" not in served.said()


def test_keys_that_cannot_be_used_end_it_with_a_sentence(tmp_path: Path) -> None:
    keys = tmp_path / "keys.env"
    keys.write_text("acme=short\n")
    with serving(tmp_path, "demo", "--api-keys", str(keys)) as served:
        assert served.process.wait(PATIENCE_SECONDS) == 1
        assert "(TenantKeysRefused): Tenant 'acme' has an API key of 5 characters" in served.said()


def test_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    with serving(tmp_path, "demo") as served:
        wait_for(lambda: len(served.children()) == 2)
        served.process.kill()
        served.process.wait()
        wait_for(lambda: served.children() == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_it_too(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "demo") as served:
        wait_for(lambda: len(served.children()) == 2)
        served.process.send_signal(number)
        assert served.process.wait(PATIENCE_SECONDS) == 0
        assert served.children() == []
        assert "Traceback" not in served.said()
