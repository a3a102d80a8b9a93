from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chiasm_cluster.node.component import Bind, Component, NodePlan
from chiasm_cluster.node.supervisor import Running, answers

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]


def until(holds: Callable[[], Any]) -> Any:
    for _ in range(400):
        found = holds()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it never came true")


class Node:
    """A supervisor in namespaces of its own, as a cluster's nodes have."""

    def __init__(self, folder: Path, components: list[Component], binds: list[Bind]) -> None:
        self.folder = folder
        plan = NodePlan(
            components=components, binds=binds, log_dir=str(folder),
            status_file=str(folder / "status.json"), ctr=["/bin/echo"],
        )  # fmt: skip
        plan.write(folder / "plan.json")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             sys.executable, "-m", "chiasm_cluster.node.supervisor", folder / "plan.json"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip

    def status(self, name: str) -> dict[str, Any]:
        path = self.folder / "status.json"
        found: dict[str, Any] = json.loads(path.read_text())[name] if path.exists() else {}
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(*components: Component, binds: list[Bind] | None = None) -> Node:
        nodes.append(Node(tmp_path, list(components), binds or []))
        return nodes[-1]

    yield make
    for node in nodes:
        node.process.kill()
        node.process.wait()


@pytest.mark.cluster
def test_a_part_that_ends_is_started_again(start: Callable[..., Node], tmp_path: Path) -> None:
    script = f"open('{tmp_path}/runs', 'a').write('x')"
    node = start(Component("short", [sys.executable, "-c", script]))
    until(lambda: node.status("short").get("num_starts", 0) >= 3)
    assert len((tmp_path / "runs").read_text()) >= 2


@pytest.mark.cluster
def test_a_part_waits_for_what_it_needs(start: Callable[..., Node], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    node = start(Component("first", SLEEP), Component("second", SLEEP, wait_for=[f"file://{gate}"]))
    until(lambda: node.status("first").get("pid"))
    assert node.status("second")["num_starts"] == 0
    gate.touch()
    until(lambda: node.status("second").get("pid"))


@pytest.mark.cluster
def test_killing_the_carrier_ends_everything_below(start: Callable[..., Node]) -> None:
    script = "import os, time; os.fork() or os.setsid(); time.sleep(1000)  # lost-child"
    node = start(Component("parent", [sys.executable, "-c", script]))
    until(lambda: len(running("lost-child")) == 2)
    node.process.kill()
    until(lambda: not running("lost-child"))


@pytest.mark.cluster
def test_a_fixed_path_is_the_nodes_own(start: Callable[..., Node], tmp_path: Path) -> None:
    own, fixed = tmp_path / "own", tmp_path / "fixed"
    own.mkdir()
    fixed.mkdir()
    writer = ["/bin/sh", "-c", f"echo inside > {fixed}/file; sleep 1000"]
    start(Component("writer", writer), binds=[Bind(str(own), str(fixed))])
    until((own / "file").exists)
    assert list(fixed.iterdir()) == []


@pytest.mark.cluster
def test_a_told_end_is_an_end(start: Callable[..., Node]) -> None:
    stubborn = "import signal, time; signal.signal(15, 1 and signal.SIG_IGN); time.sleep(1000)"
    node = start(Component("stubborn", [sys.executable, "-c", stubborn + "  # stubborn-one"]))
    until(lambda: running("stubborn-one"))
    supervisor = until(lambda: running("chiasm_cluster.node.supervisor", str(node.folder)))[-1]
    os.kill(supervisor, signal.SIGTERM)
    assert node.process.wait(timeout=30) == 0
    assert not running("stubborn-one")


def running(*words: str) -> list[int]:
    """The ids of the processes whose command line contains all of `words`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "cmdline").read_text(errors="replace")
        except OSError:
            continue
        if all(word in text for word in words):
            found.append(int(path.name))
    return sorted(found)


def test_pauses_between_starts_grow_to_a_limit_and_shrink_after_a_steady_run() -> None:
    part = Running(Component("x", ["/bin/true"]))
    pauses = []
    for now in range(0, 10):
        part.started_at = float(now)
        part.ended(float(now))
        pauses.append(part.not_before - now)
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    part.started_at = 100.0
    part.ended(200.0)
    assert part.not_before == 200.25


def test_files_sockets_and_ports_answer_once_they_are_there(tmp_path: Path) -> None:
    assert not answers(f"file://{tmp_path}/file")
    (tmp_path / "file").touch()
    assert answers(f"file://{tmp_path}/file")
    assert not answers(f"unix://{tmp_path}/socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/socket")
        server.listen()
        assert answers(f"unix://{tmp_path}/socket")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert answers(address)
    assert not answers(address)


def test_a_failing_readiness_answer_is_no_answer() -> None:
    class Unready(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/readyz" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Unready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        from chiasm_cluster.node.supervisor import _succeeds

        url = f"http://127.0.0.1:{server.server_port}"
        assert _succeeds(f"{url}/readyz")
        assert not _succeeds(f"{url}/livez")
        server.shutdown()
        thread.join()
