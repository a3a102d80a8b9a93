"""Chat requests to a worker that refuses, breaks, is replaced or is slow."""

from __future__ import annotations

import asyncio

import openai
import pytest
from chiasm_contract.errors import (
    ChiasmError,
    ErrorBody,
    InvalidRequest,
    Overloaded,
    RequestTooLarge,
    Unavailable,
)
from chiasm_contract.messages import ErrorEvent, FinishEvent, IdentityReport

from tests.sidecar.conftest import (
    ANSWER,
    FIELDS,
    Pod,
    StartPod,
    cut,
    forever,
    identity,
    question,
)

REFUSALS: list[tuple[ChiasmError, type[openai.APIStatusError], int]] = [
    (InvalidRequest("Truncated picture.", param="messages"), openai.BadRequestError, 400),
    (RequestTooLarge("The prompt is long."), openai.APIStatusError, 413),
    (Overloaded("Full.", retry_after_seconds=3), openai.RateLimitError, 429),
    (Unavailable("Gone.", retry_after_seconds=3), openai.InternalServerError, 503),
]


async def test_an_answer_of_which_a_choice_is_missing_is_not_whole(pod: Pod) -> None:
    pod.worker.answer = (ANSWER[0], FinishEvent(index=0, reason="stop", usage=None))
    assert (await pod.chat(question(n=2)))[0] == 503


@pytest.mark.parametrize("stream", [False, True])
async def test_the_workers_refusals_reach_the_client(pod: Pod, stream: bool) -> None:
    async with pod.client() as client:
        for refusal, kind, status in REFUSALS:
            pod.worker.refusal = refusal
            with pytest.raises(kind) as caught:
                await client.chat.completions.create(**question(), stream=stream)
            assert caught.value.status_code == status
            assert caught.value.body["message"] == refusal.message  # type: ignore[index]
            assert caught.value.param == refusal.param
            expected = str(refusal.retry_after_seconds) if refusal.retry_after_seconds else None
            assert caught.value.response.headers.get("retry-after") == expected


async def test_worker_cut_before_the_first_token(pod: Pod) -> None:
    pod.worker.answer = (cut,)
    for stream in (False, True):
        status, body = await pod.chat(question(stream=stream))
        assert (status, body["error"]["type"]) == (503, "service_unavailable_error")


async def test_worker_cut_within_an_answer(pod: Pod) -> None:
    pod.worker.answer = (ANSWER[0], cut)
    status, body = await pod.chat(question())
    assert status == 503
    assert "ask again" in body["error"]["message"]
    async with pod.client() as client:
        stream = await client.chat.completions.create(**question(), stream=True)
        with pytest.raises(openai.APIError, match="ended before the answer did"):
            async for _ in stream:
                pass
    assert await pod.metric('chiasm_sidecar_worker_failures_total{reason="cut"}') == 2
    assert await pod.metric('chiasm_sidecar_requests_total{code="503",modality="text"}') == 2


async def test_answer_without_end_is_not_taken_for_whole(pod: Pod) -> None:
    pod.worker.answer = (ANSWER[0],)
    assert (await pod.chat(question()))[0] == 503


async def test_fault_that_the_worker_reports_within_an_answer(pod: Pod) -> None:
    body = ErrorBody(status=500, code="engine_failed", message="The engine failed.")
    pod.worker.answer = (ANSWER[0], ErrorEvent(error=body))
    status, answer = await pod.chat(question())
    assert (status, answer["error"]["code"]) == (500, "engine_failed")


SWAPPED = pytest.mark.parametrize(
    "swapped",
    [identity("two"), identity("one", **{"compute.weights.language": "d" * 64})],
    ids=["another process", "other weights"],
)


@SWAPPED
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_waits_until_what_took_the_workers_place_is_admitted(
    pod: Pod, swapped: IdentityReport, stream: bool
) -> None:
    """Nothing of the first answer is shown: nobody has looked at who gives it."""
    num_before = len(pod.worker.requests)
    pod.worker.identity = swapped
    async with pod.client() as client:
        chat = client.chat.completions
        if stream:
            chunks = [chunk async for chunk in await chat.create(**question(stream=True))]
            said = {chunk.system_fingerprint for chunk in chunks}
        else:
            said = {(await chat.create(**question())).system_fingerprint}
    assert said == {swapped.compute_fp[:16]}
    # Refused, the picture by which the new one was admitted, and the answer.
    assert len(pod.worker.requests) == num_before + 3


@SWAPPED
async def test_nobody_is_answered_by_what_may_not_take_the_workers_place(
    start_pod: StartPod, swapped: IdentityReport
) -> None:
    name = "compute.weights.vision_encoder"
    pod = await start_pod(expected_identity={name: FIELDS[name]})
    pod.worker.identity = identity(swapped.incarnation, **{**swapped.fields, name: "e" * 64})
    status, answer = await pod.chat(question())
    assert (status, answer["error"]["code"]) == (503, "not_ready")
    await pod.until("IdentityMismatch")


async def test_what_is_replaced_again_and_again_answers_nobody(pod: Pod) -> None:
    async def replace_me(_: object) -> None:
        pod.worker.identity = identity(f"number {len(pod.worker.requests)}")

    pod.worker.identity = identity("two")
    pod.worker.answer = (replace_me, *ANSWER)
    status, answer = await pod.chat(question())
    assert status == 503
    assert "replaced" in answer["error"]["message"]


async def test_time_limit(start_pod: StartPod) -> None:
    pod = await start_pod(request_timeout_seconds=0.2)
    pod.worker.answer = (forever,)
    status, body = await pod.chat(question())
    assert status == 503
    assert "longer than 0.2 s" in body["error"]["message"]
    async with asyncio.timeout(20):
        await pod.worker.abandoned.wait()
