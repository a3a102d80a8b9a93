"""What the sidecar noted, with the worker's part as it came; found by any name of a request."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.errors import Unavailable
from chiasm_contract.timeline import Anchor, Event, PodRecording, Recording
from chiasm_sidecar.recording.timeline import Notes, Timeline

from tests.sidecar.conftest import Pod, StartPod, data_url, png, question

CANARY = "zanzibar"


def test_the_oldest_is_forgotten_first() -> None:
    now = 0.0
    timeline = Timeline(lambda: now, lambda: 0, max_events=2)
    for second in (1.0, 2.0, 3.0):
        now = second
        Notes(f"r{second:g}", timeline).instant("admission")
    assert timeline.find("r1") is None
    assert not timeline.last(2.5).is_whole
    assert timeline.last(1.0).is_whole
    assert [event.request for event in timeline.last(0.5).events] == ["r3"]
    assert timeline.of_request("r3").is_whole


def test_a_request_has_several_names() -> None:
    timeline = Timeline()
    Notes("chatcmpl-1", timeline).instant("admission", request_id="mine", trace_id="abc")
    Notes("chatcmpl-2", timeline).instant("admission", request_id="", trace_id="")
    names = ("chatcmpl-1", "mine", "abc", "", "other")
    assert [timeline.find(name) for name in names] == ["chatcmpl-1"] * 3 + [None] * 2


async def recorded(pod: Pod, **query: str) -> PodRecording:
    async with pod.http.get(f"{pod.metrics_url}/-/timeline", params=query) as response:
        assert response.status == 200, await response.text()
        return PodRecording.model_validate_json(await response.read())


async def test_a_request_is_found_by_its_id(start_pod: StartPod) -> None:
    pod = await start_pod()
    asked = question(data_url(png()))
    async with pod.http.post(
        f"{pod.url}/v1/chat/completions", json=asked, headers={"x-request-id": "mine-1"}
    ) as response:
        answer = await response.json()
    for name in ("mine-1", answer["id"]):
        found = await recorded(pod, request=name)
        names = [event.name for event in found.sidecar.events]
        assert names == ["admission", "body", "parse", "first byte", "last byte", "answer"]
        assert {event.request for event in found.sidecar.events} == {answer["id"]}
        assert found.sidecar.is_whole
        assert found.worker is not None
        assert found.worker.events == (Event(answer["id"], "receive", 0.0, 1.0, {}),)


async def test_the_last_seconds_of_everybody(start_pod: StartPod) -> None:
    pod = await start_pod()
    for _ in range(2):
        assert (await pod.chat(question(data_url(png()))))[0] == 200
    found = await recorded(pod, last_seconds="30")
    assert [event.name for event in found.sidecar.events].count("admission") == 2


async def test_a_worker_that_is_away_leaves_a_gap(start_pod: StartPod) -> None:
    pod = await start_pod()
    assert (await pod.chat(question()))[0] == 200
    await pod.worker.stop()
    found = await recorded(pod, last_seconds="30")
    assert found.worker is None
    assert found.sidecar.events


async def test_who_is_unknown_is_told(start_pod: StartPod) -> None:
    pod = await start_pod()
    where = f"{pod.metrics_url}/-/timeline"
    async with pod.http.get(where, params={"request": "nobody"}) as response:
        assert response.status == 404
        assert "answer's id" in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    "query",
    [
        {"request": "some", "last_seconds": "60"},
        {"last": "60"},
        {"request": "some", "seconds": "1"},
    ],
)
async def test_what_cannot_be_asked_for_is_refused(
    start_pod: StartPod, query: dict[str, str]
) -> None:
    pod = await start_pod()
    async with pod.http.get(f"{pod.metrics_url}/-/timeline", params=query) as response:
        assert response.status == 400
        assert "request=ID or last_seconds" in (await response.json())["error"]["message"]


async def test_a_request_is_found_by_its_callers_trace(start_pod: StartPod) -> None:
    """Also where no spans are made, and where the caller wants none."""
    pod = await start_pod()
    header = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
    async with pod.http.post(
        f"{pod.url}/v1/chat/completions", json=question(), headers=header
    ) as response:
        assert response.status == 200
    found = await recorded(pod, request="0af7651916cd43dd8448eb211c80319c")
    assert found.sidecar.is_whole


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("asked", ["-1", "0", "601", "nan", "a minute"])
async def test_seconds_that_are_none_are_refused(
    start_pod: StartPod, asked: str, is_away: bool
) -> None:
    pod = await start_pod()
    if is_away:
        await pod.worker.stop()
    where = f"{pod.metrics_url}/-/timeline"
    async with pod.http.get(where, params={"last_seconds": asked}) as response:
        assert response.status == 400
        assert "above 0 and at most 600" in (await response.json())["error"]["message"]


async def test_nothing_of_what_was_asked_is_in_it(start_pod: StartPod) -> None:
    pod = await start_pod()
    asked: dict[str, Any] = question(data_url(png())) | {"stop": [CANARY], "user": CANARY}
    asked["messages"][0]["content"].append({"type": "text", "text": CANARY})
    status, _ = await pod.chat(asked)
    assert status == 200
    async with pod.http.get(f"{pod.metrics_url}/-/timeline") as response:
        assert CANARY not in await response.text()


async def test_one_that_is_refused_is_noted_too(start_pod: StartPod) -> None:
    pod = await start_pod()
    pod.worker.refusal = Unavailable("no")
    assert (await pod.chat(question()))[0] == 503
    assert (await pod.chat(b"{"))[0] == 400
    events = (await recorded(pod, last_seconds="30")).sidecar.events
    refused, faulty = dict.fromkeys(event.request for event in events)
    answers = [event for event in events if event.name == "answer"]
    assert [(event.request, event.details["fault"]) for event in answers] == [
        (refused, "Unavailable")
    ]
    statuses = [event.details["status"] for event in events if event.name == "last byte"]
    assert statuses == [503, 400]
    assert [event.name for event in events if event.request == faulty] == [
        "admission", "body", "first byte", "last byte",
    ]  # fmt: skip


def test_a_recording_has_an_anchor() -> None:
    timeline = Timeline(lambda: 2.0, lambda: 7)
    assert timeline.last(1.0) == Recording(
        part="sidecar", anchor=Anchor(clock_seconds=2.0, wall_ns=7), is_whole=True
    )
