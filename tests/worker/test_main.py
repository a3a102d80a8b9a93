"""The process: what it refuses to start with, and that it ends when told to."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_contract.probe import check
from chiasm_worker.equality import Prepared
from chiasm_worker.loading import device, resolve_limits
from chiasm_worker.main import loading, run, usable_cores, worthwhile_threads
from chiasm_worker.server import WorkerState

from tests.worker.server.running_worker import until


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "worker.json"
    path.write_text(
        json.dumps({"model_id": "tiny", "model_path": "/x", "socket_path": str(folder / "s"),
                    **changes})
    )  # fmt: skip
    return path


def test_a_wrong_file_is_named(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"cannot use .*missing.json"):
        run(tmp_path / "missing.json")
    with pytest.raises(SystemExit, match=r"(?s)worker.json.*dtype"):
        run(write(tmp_path, dtype="int3"))


def test_a_socket_without_a_folder_is_named(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"there is no folder .*gone"):
        run(write(tmp_path, socket_path=str(tmp_path / "gone" / "s")))


def test_a_file_in_the_sockets_place_is_not_removed(tmp_path: Path):
    (tmp_path / "s").write_text("precious")
    with pytest.raises(SystemExit, match="is not a socket"):
        run(write(tmp_path))
    assert (tmp_path / "s").read_text() == "precious"


def test_a_socket_that_somebody_serves_is_not_taken(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()
        with pytest.raises(SystemExit, match="another process serves"):
            run(write(tmp_path))


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    config = WorkerConfig(model_id="m", model_path=Path("/x"), device="cuda")
    with pytest.raises(ValueError, match="device is cuda, but torch sees none"):
        device(config)


def test_length_is_lowered_to_what_the_model_was_made_for(prepared: Callable[[str], Prepared]):
    model = prepared("qwen3-grouped").model
    assert resolve_limits(model, EngineLimits(max_model_len=9000)).max_model_len == 2048
    assert resolve_limits(model, EngineLimits(max_model_len=300)).max_model_len == 300


def test_small_models_get_one_thread_and_none_gets_more_than_there_are_cores():
    assert [worthwhile_threads(mib << 20, 4) for mib in (25, 127, 128, 5000)] == [1, 1, 2, 4]


def test_cores_are_those_that_the_control_group_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    limit = tmp_path / "cpu.max"
    monkeypatch.setattr("chiasm_worker.main._CPU_LIMIT", limit)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert usable_cores() == 8
    for text, cores in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)):
        limit.write_text(text)
        assert usable_cores() == cores


def test_nothing_waits_for_a_model_that_is_being_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The fault: told to stop, the worker first loads the whole model. As the first process of a
    container it outlives the signal itself, and its answer is all that ends it."""
    config = WorkerConfig(model_id="m", model_path=Path("/x"), socket_path=tmp_path / "s")
    is_loading, go_on = threading.Event(), threading.Event()

    def build(_: WorkerConfig) -> None:
        is_loading.set()
        assert go_on.wait(120)
        raise ValueError("too late")

    async def stop_while_loading() -> None:
        async with loading(WorkerState(config)):
            await until(is_loading.is_set)

    monkeypatch.setattr("chiasm_worker.main.build", build)
    worker = threading.Thread(target=asyncio.run, args=(stop_while_loading(),))
    worker.start()
    worker.join(60)
    has_ended = not worker.is_alive()
    go_on.set()
    worker.join()
    assert has_ended


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_on_a_signal_while_it_loads(tmp_path: Path, sign: signal.Signals):
    code = (
        "import sys, pathlib, time, chiasm_worker.main as m; "
        "m.build = lambda _: time.sleep(600); m.run(pathlib.Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(write(tmp_path))]) as process:
        try:
            deadline = time.monotonic() + 120
            while "503" not in str(check(str(tmp_path / "s"), "/health")):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(sign)
            # 0 where the tests themselves were started with the signal ignored.
            assert process.wait(60) in (0, -sign)
        finally:
            process.kill()


def test_the_process_serves_and_ends_on_a_signal(
    tmp_path: Path, tiny_folder: Callable[[str], Path]
):
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(tmp_path / "s"))  # what a predecessor that crashed left behind
    config = write(tmp_path, model_path=str(tiny_folder("qwen3-grouped")), num_threads=1)
    code = "import sys, pathlib, chiasm_worker.main as m; m.run(pathlib.Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", code, str(config)]) as process:
        try:
            deadline = time.monotonic() + 120
            while check(str(tmp_path / "s"), "/health") is not None:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
