"""What answers and log lines say of a request, and what they keep quiet."""

from __future__ import annotations

import json
import logging

import pytest

from tests.sidecar.conftest import (
    Pod,
    StartPod,
    data_url,
    png,
    question,
)


async def test_request_ids(pod: Pod) -> None:
    address = f"{pod.url}/v1/chat/completions"
    async with pod.http.post(address, json=question(), headers={"X-Request-Id": "a-1"}) as answer:
        assert answer.headers["x-request-id"] == "a-1"
    async with pod.http.post(address, json=question()) as answer:
        assert len(answer.headers["x-request-id"]) == 32
    for bad in ("x" * 129, "a b", "ä"):
        status, body = await pod.chat(question(), **{"X-Request-Id": bad})
        assert (status, body["error"]["param"]) == (400, "X-Request-Id")


async def test_equal_request_ids_do_not_meet_in_the_worker(pod: Pod) -> None:
    for _ in range(2):
        await pod.chat(question(), **{"X-Request-Id": "same"})
    first, second = (head.request_id for head, _ in pod.worker.requests[-2:])
    assert first != second


async def test_a_bug_is_logged_without_what_was_asked(
    pod: Pod, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(body: bytes, *_: object) -> None:
        raise RuntimeError(body.decode())

    monkeypatch.setattr("chiasm_sidecar.front_door.chat.prepare", broken)
    status, body = await pod.chat(question())
    assert (status, body["error"]["code"]) == (500, "internal_error")
    (line,) = [record for record in caplog.records if record.name == "chiasm.sidecar.chat"]
    assert line.fields["error"] == "RuntimeError"  # type: ignore[attr-defined]
    assert "What is it?" not in str(line.__dict__)


async def test_access_log_says_who_and_how_much_but_not_what(
    start_pod: StartPod, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quiet = await start_pod()
    await quiet.chat(question(user="user-7"))
    assert not [record for record in caplog.records if record.name == "chiasm.sidecar.access"]
    pod = await start_pod(access_log=True)
    url = data_url(png())
    await pod.chat(question(url, user="user-7"), **{"X-Request-Id": "r-1"})
    (line,) = [record for record in caplog.records if record.name == "chiasm.sidecar.access"]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["user"] == "user-7"
    assert fields["request_id"] == "r-1"
    assert fields["prompt_tokens"] == 20
    everything = json.dumps([record.__dict__ for record in caplog.records], default=str)
    for secret in ("What is it?", url[30:60], "red disc"):
        assert secret not in everything
