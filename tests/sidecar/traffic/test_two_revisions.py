"""Two real sidecars: who answers, what clients see, what is counted, and what happens when the
canary fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import openai
import pytest
from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import (
    ClientFault,
    InvalidRequest,
    Overloaded,
    RequestTooLarge,
    Unavailable,
)
from chiasm_contract.messages import TokenEvent
from chiasm_contract.names import CONVERSATION_HEADER, REVISION_HEADER, ROUTE_HEADER
from chiasm_contract.traffic import LATENCY_BOUNDS, WHOLE, Override, Version

from tests.sidecar.conftest import ANSWER, Pod, cut, data_url, forever, png, question, until
from tests.sidecar.traffic.conftest import SAYS_CANARY, Fleet, StartFleet, report
from tests.sidecar.traffic.plans import CANARY, STABLE

WORDS = {"red disc": STABLE, "blue disc": CANARY}


async def say(pod: Pod, body: dict[str, Any] | None = None, **headers: str) -> tuple[str, str]:
    """Which revision answered, and the conversation's header."""
    stream = bool(body and body.get("stream"))
    async with pod.http.post(
        f"{pod.url}/v1/chat/completions", json=body or question(), headers=headers
    ) as response:
        data = await response.text()
        assert response.status == 200, data
        told = response.headers.get(CONVERSATION_HEADER, "")
    if not stream:
        return WORDS[json.loads(data)["choices"][0]["message"]["content"]], told
    events = [line[6:] for line in data.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in data.split("\n\n") if line), "nothing of ours"
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(c["delta"].get("content", "") for chunk in chunks for c in chunk["choices"])
    return WORDS[text], told


@pytest.mark.parametrize("stream", [False, True])
async def test_forty_conversations_at_five_per_cent_are_two(fleet: Fleet, stream: bool) -> None:
    await fleet.follow(share=500)
    pod = fleet.stable[0]
    answered = [(await say(pod, question(stream=stream)))[0] for _ in range(40)]
    assert answered.count(CANARY) == 2
    told = (await report(pod)).versions
    assert [told[each].new_conversations for each in (STABLE, CANARY)] == [38, 2]
    assert [told[each].in_flight for each in (STABLE, CANARY)] == [0, 0]
    for revision, number in ((STABLE, 38), (CANARY, 2)):
        counts = told[revision].by_modality["text"]
        assert (counts.requests, counts.answers, counts.errors) == (number, number, 0)
        assert (counts.output_tokens, counts.output_tokens_squared) == (2 * number, 4 * number)
        assert sum(counts.first_token) == sum(counts.inter_token) == number
        assert len(counts.first_token) == len(LATENCY_BOUNDS) + 1
    assert (await report(fleet.canary[0])).versions[CANARY].by_modality == {}, "counted once"
    requests = 'chiasm_sidecar_requests_total{code="200",modality="text"}'
    assert (await pod.metric(requests), await fleet.canary[0].metric(requests)) == (40, 0)
    labels = 'modality="text",outcome="answered",role="canary"'
    assert await pod.metric(f"chiasm_traffic_requests_total{{{labels}}}") == 2
    assert await pod.metric('chiasm_traffic_new_conversations_total{role="canary"}') == 2
    first = 'chiasm_traffic_first_token_seconds_count{modality="text",role="canary"}'
    assert await pod.metric(first) == 2
    assert await pod.metric("chiasm_traffic_plan_epoch") == 1


async def test_what_is_handed_over_is_the_request_as_it_came(fleet: Fleet) -> None:
    await fleet.follow(share=WHOLE)
    async with fleet.stable[0].http.post(
        f"{fleet.stable[0].url}/v1/chat/completions",
        json=question(data_url(png())),
        headers={"x-request-id": "mine", "traceparent": "00-ab-cd-01"},
    ) as response:
        body = await response.json()
    assert response.headers["x-request-id"] == "mine"
    assert body["choices"][0]["message"]["content"] == "blue disc"
    assert body["system_fingerprint"] == fleet.canary[0].worker.identity.compute_fp[:16]
    head, files = fleet.canary[0].worker.requests[-1]
    assert (head.messages[0].role, files.images) == ("user", (png(),))
    told = (await report(fleet.stable[0])).versions[CANARY].by_modality
    assert set(told) == {"image"}


async def test_what_names_a_revision_goes_nowhere_else(fleet: Fleet) -> None:
    await fleet.follow(share=WHOLE)
    assert (await say(fleet.stable[0], None, **{REVISION_HEADER: STABLE}))[0] == STABLE
    for pod, other in ((fleet.stable[0], CANARY), (fleet.canary[0], STABLE)):
        status, body = await pod.chat(question(), **{REVISION_HEADER: other})
        assert (status, body["error"]["code"]) == (421, "wrong_revision")
        assert "leave it out" in body["error"]["message"]


async def test_what_a_gateway_chose_is_counted_where_it_arrives_and_only_there(
    fleet: Fleet,
) -> None:
    await fleet.follow(share=5000, divided_by="gateway", override=Override(cookie="canary"))
    stable, canary = fleet.stable[0], fleet.canary[0]
    for pod, own, number in ((stable, STABLE, 3), (canary, CANARY, 2)):
        for stream in (False, True, False)[:number]:
            chosen = {ROUTE_HEADER: "gateway"}
            assert await say(pod, question(stream=stream), **chosen) == (own, "")
        counts = (await report(pod)).versions[own].by_modality["text"]
        assert (counts.requests, counts.answers, counts.errors) == (number, number, 0)
        assert sum(counts.first_token) == number
    chosen = {ROUTE_HEADER: "gateway", "cookie": "canary=never"}
    assert (await say(canary, **chosen))[0] == STABLE
    assert (await report(stable)).versions[STABLE].by_modality["text"].requests == 3
    assert (await report(canary)).versions[STABLE].by_modality["text"].requests == 1


async def test_a_pod_without_a_plan_is_of_no_revision(pod: Pod) -> None:
    status, _ = await pod.chat(question(), **{REVISION_HEADER: STABLE})
    assert status == 421
    assert (await report(pod)).epoch == 0


def turns(answer: str) -> dict[str, Any]:
    asked = question()
    more = [{"role": "assistant", "content": answer}, {"role": "user", "content": "Sure?"}]
    return asked | {"messages": [*asked["messages"], *more]}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_stays_on_its_side_at_any_sidecar(
    start_fleet: StartFleet, stream: bool
) -> None:
    fleet = await start_fleet(num_stable=3)
    await fleet.follow(share=5000)
    for number in range(6):
        revision, told = await say(fleet.stable[number % 3], question(stream=stream))
        assert told.endswith(f"@{revision}")
        for pod in fleet.stable:
            again = await say(pod, turns("whatever"), **{CONVERSATION_HEADER: told})
            assert again == (revision, told)
    assert (await fleet.counts(CANARY)).requests == 12


async def test_abort_takes_every_conversation_back(fleet: Fleet) -> None:
    await fleet.follow(share=WHOLE)
    pod = fleet.stable[0]
    _, told = await say(pod)
    assert (await say(pod, turns("blue disc")))[0] == CANARY
    await fleet.follow(canary=None, share=0, window=2)
    assert await say(pod, turns("x"), **{CONVERSATION_HEADER: told}) == (
        STABLE,
        told.replace(CANARY, STABLE),
    )
    assert (await say(pod, turns("blue disc")))[0] == STABLE
    assert (await pod.chat(turns("x"), **{CONVERSATION_HEADER: "not this"}))[0] == 400


async def test_a_client_chooses(fleet: Fleet) -> None:
    await fleet.follow(share=0, override=Override(header="x-canary", cookie="canary"))
    pod = fleet.stable[0]
    assert (await say(pod, None, **{"x-canary": "always"}))[0] == CANARY
    assert (await say(pod, None, cookie="canary=always"))[0] == CANARY
    assert (await say(pod))[0] == STABLE
    assert (await report(pod)).versions[CANARY].new_conversations == 0


async def test_after_a_promotion_old_pods_pass_on(fleet: Fleet) -> None:
    _, canary = fleet.versions()
    await fleet.follow(stable=canary, canary=None, share=0)
    assert (await say(fleet.stable[0]))[0] == CANARY, "the pointer has not moved yet"
    assert (await say(fleet.canary[0]))[0] == CANARY
    gone = Version(revision=CANARY, address="127.0.0.1:1")
    await fleet.follow(stable=gone, canary=None, share=0, window=2)
    assert (await say(fleet.stable[0]))[0] == STABLE, "better than nobody"
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.errors, counts.rerouted) == (1, 1, 1)


async def broken(fleet: Fleet, how: str) -> None:
    """Make the canary fail before it has said anything."""
    worker = fleet.canary[0].worker
    if how == "refuses":
        worker.refusal = Unavailable("Gone.")
    elif how == "overloaded":
        worker.refusal = Overloaded("Full.", retry_after_seconds=3)
    elif how == "cut":
        worker.answer = (cut,)
    elif how == "another model":
        worker.model_id = "other"
        worker.identity = worker.identity.model_copy(update={"incarnation": "other"})
        await fleet.canary[0].until("IdentityMismatch")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["unreachable", "refuses", "overloaded", "cut", "another model"])
async def test_stable_answers_for_a_canary_that_says_nothing(
    fleet: Fleet, how: str, stream: bool
) -> None:
    await broken(fleet, how)
    nobody = Version(revision=CANARY, address="127.0.0.1:1")
    await fleet.follow(share=WHOLE, **({"canary": nobody} if how == "unreachable" else {}))
    pod = fleet.stable[0]
    revision, told = await say(pod, question(stream=stream))
    assert (revision, told.split("@")[1]) == (STABLE, STABLE)
    canary, stable = await fleet.counts(CANARY), await fleet.counts(STABLE)
    assert (canary.requests, canary.errors, canary.rerouted, canary.answers) == (1, 1, 1, 0)
    assert (stable.requests, stable.errors, stable.answers) == (1, 0, 1)
    labels = 'modality="text",outcome="rerouted",role="canary"'
    assert await pod.metric(f"chiasm_traffic_requests_total{{{labels}}}") == 1


async def test_a_request_that_comes_back_goes_no_further(fleet: Fleet) -> None:
    ourselves = fleet.versions()[0].model_copy(update={"revision": CANARY})
    await fleet.follow(share=WHOLE, canary=ourselves)
    assert (await say(fleet.stable[0]))[0] == STABLE
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.rerouted) == (1, 1)


async def test_an_answer_that_is_not_streamed_is_never_cut(fleet: Fleet) -> None:
    fleet.canary[0].worker.answer = (ANSWER[0], cut)
    await fleet.follow(share=WHOLE)
    assert (await say(fleet.stable[0]))[0] == STABLE


@pytest.mark.parametrize("headers", [{}, {CONVERSATION_HEADER: "mine"}], ids=["unnamed", "named"])
async def test_a_stream_that_is_cut_says_so(fleet: Fleet, headers: dict[str, str]) -> None:
    fleet.canary[0].worker.answer = (ANSWER[0], cut)
    await fleet.follow(share=WHOLE)
    async with fleet.stable[0].client() as client:
        stream = await client.chat.completions.create(
            **question(), stream=True, extra_headers=headers
        )
        with pytest.raises(openai.APIError, match="ask again"):
            async for _ in stream:
                pass
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.errors, counts.rerouted) == (1, 1, 0)


@pytest.mark.parametrize("kind", [InvalidRequest, RequestTooLarge])
async def test_the_clients_own_faults_are_passed_on(fleet: Fleet, kind: type[ClientFault]) -> None:
    for pod in (*fleet.stable, *fleet.canary):
        pod.worker.refusal = kind("Truncated picture.", param="messages")
    await fleet.follow(share=WHOLE)
    pod = fleet.stable[0]
    status, body = await pod.chat(question())
    assert (status, body["error"]["message"]) == (kind.status, "Truncated picture.")
    for revision, role in ((CANARY, "canary"), (STABLE, "stable")):
        counts = await fleet.counts(revision)
        assert (counts.requests, counts.errors, counts.answers) == (1, 0, 0)
        labels = f'modality="text",outcome="refused",role="{role}"'
        assert await pod.metric(f"chiasm_traffic_requests_total{{{labels}}}") == 1
    assert (await report(pod)).versions[CANARY].in_flight == 0


async def test_a_canary_that_is_as_full_as_stable_has_not_failed(fleet: Fleet) -> None:
    """Stable's 429 is no error: under more load than both carry, a sound canary was aborted."""
    for pod in (*fleet.stable, *fleet.canary):
        pod.worker.refusal = Overloaded("Full.", retry_after_seconds=3)
    await fleet.follow(share=WHOLE)
    assert (await fleet.stable[0].chat(question()))[0] == 429
    for revision in (CANARY, STABLE):
        counts = await fleet.counts(revision)
        assert (counts.requests, counts.errors, counts.rerouted, counts.answers) == (1, 0, 0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_only_the_canary_finds_faulty_is_its_own_fault(
    start_fleet: StartFleet, stream: bool
) -> None:
    """A picture was sent to a replica that takes text only: 400 (ainode #83). Clients were told
    that they had erred, and no comparison saw it."""
    fleet = await start_fleet(canary={"images": ImageLimits(max_per_prompt=0)})
    await fleet.follow(share=WHOLE)
    pod = fleet.stable[0]
    picture = question(data_url(png()), stream=stream)
    mine = {CONVERSATION_HEADER: "mine"}
    assert (await say(pod, picture, **mine))[0] == STABLE
    canary, stable = await fleet.counts(CANARY, "image"), await fleet.counts(STABLE, "image")
    assert (canary.requests, canary.errors, canary.rerouted, canary.answers) == (1, 1, 1, 0)
    assert (stable.requests, stable.errors, stable.answers) == (1, 0, 1)
    assert (await say(pod, question(), **mine))[0] == STABLE, "the conversation stays there"
    assert (await say(pod))[0] == CANARY
    labels = 'modality="image",outcome="rerouted",role="canary"'
    assert await pod.metric(f"chiasm_traffic_requests_total{{{labels}}}") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_is_noticed_by_the_other_worker(
    fleet: Fleet, stream: bool
) -> None:
    worker = fleet.canary[0].worker
    worker.answer = (ANSWER[0], forever)
    await fleet.follow(share=WHOLE)
    asking = asyncio.create_task(fleet.stable[0].chat(question(stream=stream)))
    await until(worker.busy)
    told = (await report(fleet.stable[0])).versions[CANARY]
    assert told.in_flight == 1
    assert await fleet.stable[0].metric('chiasm_traffic_in_flight{role="canary"}') == 1
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(20):
        await worker.abandoned.wait()

    async def counted() -> bool:
        return (await fleet.counts(CANARY)).requests == 1

    await until(counted)
    counts = await fleet.counts(CANARY)
    assert (counts.errors, counts.answers) == (0, 0)


async def test_the_time_limit_is_that_of_our_own(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(request_timeout_seconds=0.5)
    fleet.canary[0].worker.answer = (forever,)
    await fleet.follow(share=WHOLE)
    pod = fleet.stable[0]
    status, body = await pod.chat(question())
    assert status == 503
    assert "longer than 0.5 s" in body["error"]["message"]
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.errors, counts.rerouted) == (1, 1, 0)
    assert await pod.metric('chiasm_sidecar_worker_failures_total{reason="timeout"}') == 0


async def test_plans_change_under_load_without_a_lost_request(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(num_stable=2)
    await fleet.follow(share=0)
    over = asyncio.Event()
    statuses: list[int] = []

    async def ask(number: int) -> None:
        async with aiohttp.ClientSession() as http:
            while not over.is_set():
                pod = fleet.stable[number % 2]
                body = question(stream=bool(number % 3))
                async with http.post(f"{pod.url}/v1/chat/completions", json=body) as response:
                    data = await response.text()
                    whole = data.endswith("[DONE]\n\n") or not number % 3
                    statuses.append(response.status if whole else 0)

    clients = [asyncio.create_task(ask(number)) for number in range(6)]
    _, canary = fleet.versions()
    for window, fields in enumerate(
        (
            {"share": 5000},
            {"share": WHOLE},
            {"canary": None, "share": 0},
            {"share": 3333},
            {"stable": canary, "canary": None, "share": 0},
        ),
        start=2,
    ):
        await fleet.follow(window=window, **fields)
    over.set()
    await asyncio.gather(*clients)
    assert statuses
    assert set(statuses) == {200}


async def test_tokens_and_choices_are_counted_where_they_are_made(fleet: Fleet) -> None:
    long = tuple(TokenEvent(text=f"{n} ", token_ids=(n,)) for n in range(3))
    fleet.canary[0].worker.answer = (*long, *SAYS_CANARY)
    await fleet.follow(share=WHOLE)
    for stream in (False, True):
        status, _ = (
            await fleet.stable[0].chat(question())
            if not stream
            else (200, await stream_text(fleet.stable[0]))
        )
        assert status == 200
    counts = await fleet.counts(CANARY)
    assert (counts.answers, counts.output_tokens) == (2, 4)


async def stream_text(pod: Pod) -> str:
    async with pod.client() as client:
        stream = await client.chat.completions.create(**question(), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
