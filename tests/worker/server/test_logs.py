"""What the worker logs of a request: all its names, and none of its words."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chiasm_contract.logs import JsonFormatter

from tests.worker.server.running_worker import Worker, body

CANARY = "zanzibar"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NAMES = {"answer_id": "same for all", "request_id": "mine", "trace_id": TRACE}
HEADERS = {"x-request-id": "mine", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-00"}


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Every line that the process logs, in the form in which it does."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def fails(*_: Any, **__: Any) -> None:
    raise ValueError(f"cannot read {CANARY}")


async def ask(worker: Worker, picture: bytes) -> None:
    content = body(f"what of {CANARY}?", (picture,), max_tokens=4)
    await worker.client.post("/generate", content=content, headers=HEADERS)


async def test_a_step_that_fails_names_its_requests(
    worker: Worker,
    picture: Callable[..., bytes],
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert worker.state.serving is not None
    decoder = worker.state.serving.service.engine.model.decoder
    monkeypatch.setattr(decoder, "forward", fails)
    await ask(worker, picture(1))
    (line,) = [line for line in lines(written) if line["message"] == "A step failed"]
    assert line["requests"] == [NAMES]
    assert line["error"] == "ValueError"
    assert line["traceback"]
    assert f"cannot read {CANARY}" not in written.getvalue()


async def test_a_picture_that_cannot_be_read_quotes_nobody(
    worker: Worker,
    picture: Callable[..., bytes],
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert worker.state.serving is not None
    monkeypatch.setattr(worker.state.serving.generation.reading.prompts, "build", fails)
    await ask(worker, picture(1))
    assert any(line.get("error") == "ValueError" for line in lines(written))
    assert f"cannot read {CANARY}" not in written.getvalue()


async def test_an_encoder_that_fails_names_its_request(
    worker: Worker,
    picture: Callable[..., bytes],
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert worker.state.serving is not None
    encoder = worker.state.serving.service.engine.model.encoder
    monkeypatch.setattr(encoder, "encode_batch", fails)
    await ask(worker, picture(1))
    (line,) = [line for line in lines(written) if line["message"] == "A step failed"]
    assert line["requests"] == [NAMES]
    assert line["error"] == "EncodingError from ValueError"


async def test_what_the_reading_threads_log_is_of_the_request(
    worker: Worker,
    picture: Callable[..., bytes],
    written: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tell(*_: Any) -> None:
        logging.getLogger("chiasm").warning("in a thread")
        raise ValueError

    assert worker.state.serving is not None
    monkeypatch.setattr(worker.state.serving.generation.reading.prompts, "build", tell)
    await ask(worker, picture(1))
    (line,) = [line for line in lines(written) if line["message"] == "in a thread"]
    assert {name: line[name] for name in NAMES} == NAMES
