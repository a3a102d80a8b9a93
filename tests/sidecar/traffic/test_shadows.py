"""The canary is asked what stable has answered; no client is held up by it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from aiohttp import web
from chiasm_contract.errors import Overloaded
from chiasm_contract.messages import FinishEvent, TokenEvent
from chiasm_contract.traffic import WHOLE
from chiasm_operator.reconcile.analysis import Kind, Policy, judge

from tests.sidecar.conftest import ANSWER, USAGE, forever, question, until
from tests.sidecar.traffic.conftest import Fleet, StartFleet
from tests.sidecar.traffic.plans import CANARY, STABLE
from tests.sidecar.traffic.test_two_revisions import say


@dataclass(frozen=True)
class Together:
    """Events that the worker sends in one piece."""

    events: tuple[TokenEvent | FinishEvent, ...]

    def model_dump_json(self) -> str:
        return "\n".join(event.model_dump_json() for event in self.events)


TWO_CHOICES = (
    TokenEvent(text="red", token_ids=(5,)),
    FinishEvent(reason="stop", usage=None),
    TokenEvent(index=1, text="blue", token_ids=(6,)),
    FinishEvent(index=1, reason="stop", usage=USAGE),
)


@pytest.mark.parametrize("stream", [False, True])
async def test_repeatable_requests_are_asked_of_both(fleet: Fleet, stream: bool) -> None:
    await fleet.follow(share=0, mirror=5000)
    pod = fleet.stable[0]

    async def shadowed(number: int) -> bool:
        return (await fleet.counts(CANARY)).shadowed == number

    for number in range(4):
        assert (await say(pod, question(stream=stream, temperature=0)))[0] == STABLE
        await until(lambda number=number: shadowed((number + 1) // 2))  # type: ignore[misc]
    await say(pod, question(stream=stream))
    fleet.canary[0].worker.answer = ANSWER
    for number in range(2):
        await say(pod, question(stream=stream, temperature=0.5, top_k=1))
        await until(lambda number=number: shadowed(2 + (number + 1) // 2))  # type: ignore[misc]
    counts = await fleet.counts(CANARY)
    assert (counts.requests, counts.shadowed, counts.agreed) == (0, 3, 1)
    for outcome, number in (("agreed", 1), ("differed", 2), ("failed", 0)):
        labels = f'modality="text",outcome="{outcome}"'
        assert await pod.metric(f"chiasm_traffic_shadowed_total{{{labels}}}") == number


async def test_shadows_never_hold_a_client_up(fleet: Fleet) -> None:
    canary = fleet.canary[0].worker
    canary.answer = (forever,)
    await fleet.follow(share=0, mirror=WHOLE)
    pod = fleet.stable[0]
    for _ in range(6):
        assert (await say(pod, question(temperature=0)))[0] == STABLE
    dropped = 'chiasm_traffic_shadowed_total{modality="text",outcome="dropped"}'
    assert await pod.metric(dropped) == 2
    await fleet.canary[0].worker.stop()

    async def failed() -> bool:
        labels = 'modality="text",outcome="failed"'
        return await pod.metric(f"chiasm_traffic_shadowed_total{{{labels}}}") == 4

    await until(failed)
    counts = await fleet.counts(CANARY)
    assert (counts.shadowed, counts.shadow_errors, counts.errors) == (0, 4, 0)


def outcome(name: str) -> str:
    return f'chiasm_traffic_shadowed_total{{modality="text",outcome="{name}"}}'


async def test_a_canary_that_is_full_is_only_asked_less(fleet: Fleet) -> None:
    """It has pods for its share, not for what is mirrored: 429 says nothing of its answers."""
    canary = fleet.canary[0].worker
    canary.refusal = Overloaded("Full.", retry_after_seconds=1)
    await fleet.follow(share=0, mirror=WHOLE)
    pod = fleet.stable[0]
    for number in range(1, 9):
        assert (await say(pod, question(temperature=0)))[0] == STABLE

        async def left_out(number: int = number) -> bool:
            return await pod.metric(outcome("dropped")) == number

        await until(left_out)
    mine, theirs = await fleet.counts(CANARY), await fleet.counts(STABLE)
    assert (mine.shadowed, mine.shadow_errors, mine.shadow_late) == (0, 0, 0)
    assert judge(Policy(), {"text": mine}, {"text": theirs}).kind is Kind.HOLD


async def test_what_is_late_while_others_are_answered_is_no_failure(
    start_fleet: StartFleet,
) -> None:
    """A queue that is too long for the time limit, or a request that hangs: nobody can tell."""
    fleet = await start_fleet(request_timeout_seconds=4)
    canary = fleet.canary[0].worker

    probed = len(canary.requests)

    async def the_first_three_wait(request: web.Request) -> None:
        if len(canary.requests) <= probed + 3:
            await forever(request)

    canary.answer = (the_first_three_wait, *ANSWER)
    await fleet.follow(share=0, mirror=WHOLE)
    pod = fleet.stable[0]

    async def shadowed() -> bool:
        return (await fleet.counts(CANARY)).shadowed == 1

    for number in range(1, 5):
        assert (await say(pod, question(temperature=0)))[0] == STABLE

        async def arrived(number: int = number) -> bool:
            return len(canary.requests) == probed + number

        await until(arrived)
    await until(shadowed)

    async def late() -> bool:
        return await pod.metric(outcome("late")) == 3

    await until(late)
    mine, theirs = await fleet.counts(CANARY), await fleet.counts(STABLE)
    assert (mine.shadowed, mine.shadow_errors, mine.shadow_late) == (1, 0, 3)
    assert judge(Policy(), {"text": mine}, {"text": theirs}).kind is Kind.HOLD


async def test_a_canary_that_answers_none_in_time_has_failed(start_fleet: StartFleet) -> None:
    fleet = await start_fleet(request_timeout_seconds=0.5)
    fleet.canary[0].worker.answer = (forever,)
    await fleet.follow(share=0, mirror=WHOLE)
    for _ in range(3):
        assert (await say(fleet.stable[0], question(temperature=0)))[0] == STABLE

    async def failed() -> bool:
        return (await fleet.counts(CANARY)).shadow_errors == 3

    await until(failed)
    mine, theirs = await fleet.counts(CANARY), await fleet.counts(STABLE)
    assert judge(Policy(), {"text": mine}, {"text": theirs}).kind is Kind.FAIL


@pytest.mark.parametrize("stream", [False, True])
async def test_a_choice_that_ends_hides_no_text_of_another(fleet: Fleet, stream: bool) -> None:
    pod = fleet.stable[0]

    async def first_is_read(_: web.Request) -> None:
        first_text = 'vllm:time_to_first_token_seconds_count{model_name="demo"}'

        async def read() -> bool:
            return await pod.metric(first_text) == 1

        await until(read)

    pod.worker.answer = (TWO_CHOICES[0], first_is_read, Together(TWO_CHOICES[1:]))
    fleet.canary[0].worker.answer = TWO_CHOICES
    await fleet.follow(share=0, mirror=WHOLE)
    body = question(stream=stream, n=2, temperature=0.5, top_k=1)
    async with pod.http.post(f"{pod.url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()

    async def compared() -> bool:
        return (await fleet.counts(CANARY)).shadowed == 1

    await until(compared)
    assert (await fleet.counts(CANARY)).agreed == 1


async def test_a_choice_without_text_is_an_answer_as_well(fleet: Fleet) -> None:
    for pod in (*fleet.stable, *fleet.canary):
        pod.worker.answer = TWO_CHOICES[1:]
    await fleet.follow(share=0, mirror=WHOLE)
    body = question(n=2, temperature=0.5, top_k=1)
    assert (await fleet.stable[0].chat(body))[0] == 200

    async def compared() -> bool:
        return (await fleet.counts(CANARY)).shadowed == 1

    await until(compared)
    assert (await fleet.counts(CANARY)).agreed == 1
