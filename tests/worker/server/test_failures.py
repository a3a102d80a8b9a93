"""What the real server does when loading, answering or stopping fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from chiasm_contract import messages
from chiasm_contract.config import WorkerConfig
from chiasm_contract.errors import Unavailable
from chiasm_contract.messages import (
    GenerateHead,
    MediaFiles,
)

from tests.worker.server.running_worker import Worker, body, events, serving, until


async def test_a_model_that_cannot_be_loaded_has_a_reason(config: WorkerConfig, tmp_path: Path):
    missing = config.model_copy(update={"model_path": tmp_path / "nothing"})
    async with serving(missing, wait=False) as worker:
        assert (await worker.client.get("/health")).status_code == 503
        await until(lambda: worker.state.load_failure is not None)
        for path in ("/health", "/identity", "/model", "/metrics"):
            response = await worker.client.get(path)
            assert response.status_code == 503
            assert response.json()["code"] == "model_load_failed"
            assert "holds no config.json" in response.json()["message"]


async def test_a_worker_that_loads_says_so(config: WorkerConfig):
    async with serving(config, wait=False) as worker:
        response = await worker.generate("hello")
        assert response.status_code == 503
        assert response.json()["code"] == "model_loading"


@pytest.mark.parametrize(("seconds", "is_whole"), [(0.1, False), (60, True)])
async def test_an_answer_has_its_time_after_the_order_to_stop(
    seconds: float, is_whole: bool, config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
):
    changes = {"shutdown_seconds": seconds}
    async with serving(config.model_copy(update=changes)) as worker:
        assert worker.state.serving is not None
        runner = worker.state.serving.service.engine.runner
        go_on = threading.Event()
        run, count = runner.run, itertools.count()

        def run_slowly(*arguments: Any) -> Any:
            if next(count) > 2:
                assert go_on.wait(60)
            return run(*arguments)

        monkeypatch.setattr(runner, "run", run_slowly)
        content = body("hello", max_tokens=40)
        lines = []
        async with worker.client.stream("POST", "/generate", content=content) as response:
            arriving = response.aiter_lines()
            lines.append(await anext(arriving))
            worker.server.should_exit = True
            if is_whole:
                await until(lambda: not worker.server.servers[0].sockets)
                go_on.set()
            with contextlib.suppress(httpx.RemoteProtocolError):
                lines += [line async for line in arriving]
            go_on.set()
        assert (len(lines) == 41) == is_whole


async def test_a_bug_is_500_without_detail(worker: Worker, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> None:
        raise KeyError("/secret/path")

    assert worker.state.serving is not None
    monkeypatch.setattr(worker.state.serving.generation.reading.prompts, "build", broken)
    response = await worker.generate("hello")
    assert response.status_code == 500
    assert response.json()["code"] == "internal_error"
    assert "secret" not in response.text
    monkeypatch.undo()
    assert (await worker.generate("hello")).status_code == 200


async def test_pictures_are_let_go_before_the_first_token(
    worker: Worker, picture: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
):
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine
    seen: list[bytes] = []
    let_go: list[bool] = []

    def decode(content: bytes) -> tuple[GenerateHead, MediaFiles]:
        head, files = messages.decode_request(content)
        seen.extend((content, *files.images))
        return head, files

    add = engine.add

    def is_held() -> bool:
        # By the list, the loop's variable and the question itself it always is.
        return any(sys.getrefcount(data) > 3 for data in seen)

    def add_and_look(*arguments: Any) -> None:
        deadline = time.monotonic() + 10
        while is_held() and time.monotonic() < deadline:
            time.sleep(0.01)  # The thread that decoded them may still be on its way out.
        let_go.append(not is_held())
        add(*arguments)

    monkeypatch.setattr("chiasm_worker.server.decode_request", decode)
    monkeypatch.setattr(engine, "add", add_and_look)
    events(await worker.generate("hello", (picture(1), picture(2))))
    assert len(seen) == 3
    assert let_go == [True]


async def test_a_request_that_cannot_be_queued_ends_alone(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken(*_: Any) -> None:
        raise RuntimeError("no such tokenizer")

    monkeypatch.setattr("chiasm_worker.engine.live.Answer", broken)
    (failure,) = events(await worker.generate("hello"))
    assert "failed on this request" in failure.error.message
    assert "Request same for all#0 cannot be queued" in caplog.text
    monkeypatch.undo()
    assert (await worker.generate("hello")).status_code == 200


async def test_a_broken_engine_ends_requests_and_health(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
):
    assert worker.state.serving is not None
    engine = worker.state.serving.service.engine

    def broken() -> None:
        raise RuntimeError("bookkeeping")

    monkeypatch.setattr(engine.scheduler, "schedule", broken)
    response = await worker.generate("hello")
    assert response.status_code == 503
    assert "engine stopped" in json.loads(response.text)["message"]
    assert (await worker.client.get("/health")).status_code == 503


async def test_a_request_that_comes_when_the_engine_has_stopped_does_not_wait(worker: Worker):
    assert worker.state.serving is not None
    serving = worker.state.serving
    await serving.service.stop()
    # Its pictures were being decoded when the engine stopped: /generate itself would refuse it.
    late = serving.generation.events(messages.decode_request(body("hello"))[0], MediaFiles())
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match="engine stopped"):
            await anext(late)
    assert not serving.service._waiters


@pytest.mark.parametrize("num_sent", [0, 1, 5000], ids="{} bytes".format)
async def test_a_client_that_leaves_while_its_body_arrives_is_no_bug(
    num_sent: int, worker: Worker, caplog: pytest.LogCaptureFixture
):
    """The fault: a traceback in the log for everyone whose connection breaks."""
    content = body("hello " * 1000)
    _, writer = await asyncio.open_unix_connection(str(worker.state.config.socket_path))
    length = f"Content-Length: {len(content)}"
    writer.write(f"POST /generate HTTP/1.1\r\nHost: w\r\n{length}\r\n\r\n".encode())
    writer.write(content[:num_sent])
    await writer.drain()
    tasks = worker.server.server_state.tasks
    await until(lambda: bool(tasks))
    writer.close()
    await until(lambda: not tasks)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert worker.state.serving is not None
    assert worker.state.serving.service._num_inside == 0
