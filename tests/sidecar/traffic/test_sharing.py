"""A conversation without a header finds its revision at another sidecar; a lost pin never crosses
to the canary."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.traffic import WHOLE, Version
from chiasm_sidecar.traffic.sharing import MAX_KEYS, others

from tests.sidecar.conftest import ANSWER, Pod, question, until
from tests.sidecar.traffic.conftest import Fleet, StartFleet
from tests.sidecar.traffic.plans import CANARY, STABLE, plan
from tests.sidecar.traffic.test_two_revisions import say, turns


@pytest.fixture
async def fleet(start_fleet: StartFleet) -> Fleet:
    return await start_fleet(num_stable=3)


async def num_told(pod: Pod, outcome: str = "told") -> float:
    return await pod.metric(f'chiasm_traffic_pins_told_total{{outcome="{outcome}"}}')


async def has_told(pod: Pod, number: int) -> None:
    async def told() -> bool:
        return await num_told(pod) == number

    await until(told)


async def test_the_canarys_conversations_are_found_everywhere(fleet: Fleet) -> None:
    await fleet.follow(share=WHOLE)
    first, *others = fleet.stable
    assert (await say(first, question(stream=True)))[0] == CANARY
    await has_told(first, 2)
    for pod in others:
        assert (await say(pod, turns("blue disc")))[0] == CANARY
        assert (await say(pod, turns("red disc")))[0] == STABLE, "nobody's conversation"


async def test_stables_conversations_need_not_be_told(fleet: Fleet) -> None:
    await fleet.follow(share=0)
    assert (await say(fleet.stable[0]))[0] == STABLE
    await fleet.follow(share=WHOLE, window=2)
    for pod in fleet.stable:
        assert (await say(pod, turns("red disc")))[0] == STABLE
        assert await num_told(pod) == 0


async def test_names_and_moves_are_told(fleet: Fleet) -> None:
    await fleet.follow(share=WHOLE)
    first, second, third = fleet.stable
    named: Any = {"x-chiasm-conversation": "mine"}
    assert (await say(first, None, **named))[0] == CANARY
    await has_told(first, 2)
    await fleet.follow(share=0, window=2)
    assert (await say(second, None, **named))[0] == CANARY
    await has_told(second, 2)
    gone = Version(revision=CANARY, address="127.0.0.1:1")
    await fleet.follow(share=0, window=2, canary=gone)
    assert (await say(second, None, **named))[0] == STABLE
    await has_told(second, 6)
    await fleet.follow(share=WHOLE, window=3)
    assert (await say(third, None, **named))[0] == STABLE


async def test_a_sidecar_that_cannot_be_told_keeps_nobody_waiting(fleet: Fleet) -> None:
    await fleet.follow(share=WHOLE, member_addresses=("127.0.0.1:1",) * 3)
    first, second, _ = fleet.stable
    assert (await say(first))[0] == CANARY

    async def failed() -> bool:
        return await num_told(first, "failed") == 1

    await until(failed)
    assert (await say(second, turns("blue disc")))[0] == STABLE, "lost, and not the canary's"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"pins": {"xyz": CANARY}},
        {"pins": {"a" * 64: ""}},
        {"pins": {f"{n:064x}": CANARY for n in range(MAX_KEYS + 1)}},
        {"pins": {}, "more": 1},
    ],
)
async def test_what_is_no_message_is_refused(pod: Pod, body: Any) -> None:
    async with pod.http.post(f"{pod.metrics_url}/-/pins", json=body) as response:
        assert response.status == 400
        assert "Only sidecars send them" in (await response.json())["error"]["message"]


async def test_a_message_has_a_largest_size(pod: Pod) -> None:
    async with pod.http.post(f"{pod.metrics_url}/-/pins", data=b" " * 300_000) as response:
        assert response.status == 413


async def test_a_pin_that_is_made_up_moves_nothing_but_between_the_two(fleet: Fleet) -> None:
    await fleet.follow(share=0)
    pod = fleet.stable[0]
    told = {"pins": {"a" * 64: "v1-other", "b" * 64: CANARY}}
    async with pod.http.post(f"{pod.metrics_url}/-/pins", json=told) as response:
        assert response.status == 204
    assert await pod.metric("chiasm_traffic_pins") == 1
    pod.worker.answer = ANSWER
    assert (await say(pod, turns("x")))[0] == STABLE


def test_nobody_is_told_what_it_says_itself() -> None:
    made = plan(members=("a", "b"), member_addresses=("h:1", "h:2"))
    assert others(made, "b") == ("h:1",)
    assert others(made, "an old one") == ("h:1", "h:2")
    assert others(plan(members=("a",)), "a") == (), "no addresses: nobody is told"
