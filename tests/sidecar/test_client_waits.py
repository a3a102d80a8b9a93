"""A client that leaves is noticed."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.sidecar.conftest import (
    ANSWER,
    Pod,
    forever,
    question,
    until,
)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_its_generation(pod: Pod, stream: bool) -> None:
    pod.worker.answer = (ANSWER[0], forever)
    request = asyncio.create_task(pod.chat(question(stream=stream)))
    await until(pod.worker.busy)
    request.cancel()
    async with asyncio.timeout(20):
        await pod.worker.abandoned.wait()

    async def counted() -> bool:
        return await pod.metric('chiasm_sidecar_requests_total{code="499",modality="text"}') == 1

    await until(counted)
    assert await pod.metric("chiasm_sidecar_requests_in_progress") == 0
    aborted = 'vllm:request_success_total{finished_reason="abort",model_name="demo"}'
    assert await pod.metric(aborted) == 1


async def test_a_request_that_the_end_of_the_server_cuts_was_not_answered(pod: Pod) -> None:
    pod.worker.answer = (ANSWER[0], forever)
    request = asyncio.create_task(pod.chat(question(stream=True)))
    await until(pod.worker.busy)
    # What uvicorn does with those that outlast its patience.
    for task in asyncio.all_tasks():
        if "run_asgi" in repr(task.get_coro()):
            task.cancel()
    with pytest.raises(aiohttp.ClientError):
        await request

    async def counted() -> bool:
        return await pod.metric('chiasm_sidecar_requests_total{code="503",modality="text"}') == 1

    await until(counted)
    assert await pod.metric('chiasm_sidecar_requests_total{code="200",modality="text"}') == 0
