"""The timeline of a real worker: every phase of a request, and nothing of what it asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chiasm_contract.timeline import Recording, RequestSpans, request_of

from tests.worker.server.running_worker import Worker, body, events

SAMPLED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
UNSAMPLED = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
CANARY = "zanzibar"


async def recorded(worker: Worker, **query: str) -> Recording:
    response = await worker.client.get("/timeline", params=query)
    assert response.status_code == 200, response.text
    return Recording.model_validate_json(response.content)


async def test_every_phase_is_noted(worker: Worker, picture: Callable[..., bytes]) -> None:
    answer = events(await worker.generate("what is it?", (picture(1),), max_tokens=6))
    found = await recorded(worker, request="same for all")
    names = [event.name for event in found.events]
    assert names == ["receive", "hash", "decode", "process", "prompt", "queued", "end"]
    assert all(event.request == "same for all" for event in found.events)
    assert all(event.start <= event.end for event in found.events)
    starts = [event.start for event in found.events]
    assert starts == sorted(starts)
    queued, end = found.events[5].details, found.events[6].details
    assert queued["image_items"] == 1
    assert queued["prompt_tokens"] == answer[-1].usage.prompt_tokens
    assert (end["reason"], end["output_tokens"]) == ("length", 6)
    assert found.is_whole


async def test_steps_add_up_to_the_answer(worker: Worker, picture: Callable[..., bytes]) -> None:
    answer = events(await worker.generate("what is it?", (picture(1),), max_tokens=6))
    found = await recorded(worker, request="same for all")
    rows = [row for step in found.steps for row in step.rows]
    assert {request_of(row.choice_id) for row in rows} == {"same for all"}
    usage = answer[-1].usage
    assert sum(row.num_tokens for row in rows) == usage.prompt_tokens + usage.completion_tokens - 1
    assert sum(row.samples for row in rows) == 6
    (encode,) = [encode for step in found.steps for encode in step.encodes]
    assert encode.modality == "image"
    for step in found.steps:
        times = step[1:7]
        assert list(times) == sorted(times)
        assert 0 <= step.used_blocks <= found.num_blocks
    assert found.steps[0].scheduled <= encode.start <= encode.end <= found.steps[0].encoded
    assert [step.number for step in found.steps] == sorted({step.number for step in found.steps})


async def test_a_file_seen_before_is_not_decoded(
    worker: Worker, picture: Callable[..., bytes]
) -> None:
    for _ in range(2):
        events(await worker.generate("what is it?", (picture(1),), max_tokens=2))
    found = await recorded(worker, last_seconds="600")
    names = [event.name for event in found.events]
    assert names.count("hash") == 2
    assert names.count("decode") == 1
    assert names.count("seen") == 1


async def test_nothing_of_what_was_asked_is_in_it(
    worker: Worker, picture: Callable[..., bytes]
) -> None:
    await worker.generate(f"{CANARY}?", (picture(1),), max_tokens=4, stop=(f"never {CANARY}",))
    for query in ({"request": "same for all"}, {"last_seconds": "60"}):
        response = await worker.client.get("/timeline", params=query)
        assert CANARY not in response.text
        assert "same for all" in response.text


@pytest.mark.parametrize("given", ["0", "-1", "601", "nan", "much"])
async def test_other_times_are_refused(worker: Worker, given: str) -> None:
    response = await worker.client.get("/timeline", params={"last_seconds": given})
    assert response.status_code == 400
    assert response.json()["param"] == "last_seconds"


async def test_spans_of_a_sampled_request_are_given_once(
    worker: Worker, picture: Callable[..., bytes]
) -> None:
    content = body("what is it?", (picture(1),), max_tokens=4)
    events(await worker.client.post("/generate", content=content, headers=SAMPLED))
    found = await spans(worker)
    assert [span.name for span in found.spans] == [
        "receive", "hash", "decode", "process", "prompt", "encode", "queue",
        "prefill", "prefill chunk", "decode",
    ]  # fmt: skip
    assert (await spans(worker)).spans == ()


@pytest.mark.parametrize("headers", [{}, UNSAMPLED, {"traceparent": "rubbish"}])
async def test_others_have_none(worker: Worker, headers: dict[str, str]) -> None:
    events(await worker.client.post("/generate", content=body("hello"), headers=headers))
    assert (await spans(worker)).spans == ()


async def spans(worker: Worker) -> RequestSpans:
    response = await worker.client.get("/spans", params={"request": "same for all"})
    return RequestSpans.model_validate_json(response.content)
