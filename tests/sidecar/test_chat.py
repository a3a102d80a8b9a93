"""Good chat requests over real connections, as the official client sends them."""

from __future__ import annotations

import asyncio

import openai
import pytest
from chiasm_contract.messages import FinishEvent, TokenEvent

from tests.sidecar.conftest import (
    ANSWER,
    USAGE,
    Pod,
    data_url,
    png,
    question,
)


async def test_openai_client(pod: Pod) -> None:
    async with pod.client() as client:
        answer = await client.chat.completions.create(**question(data_url(png())))
        assert answer.choices[0].message.content == "red disc"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.system_fingerprint == pod.worker.identity.compute_fp[:16]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 4
        head, files = pod.worker.requests[-1]
        assert head.request_id == answer.id
        assert files.images == (png(),)
        models = await client.models.list()
        assert [model.id for model in models.data] == ["demo"]
        assert (await client.models.retrieve("demo")).id == "demo"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("other/model")


async def test_priority_reaches_the_worker(pod: Pod) -> None:
    async with pod.client() as client:
        await client.chat.completions.create(**question(), extra_body={"priority": -2})
        assert pod.worker.requests[-1][0].priority == -2
        await client.chat.completions.create(**question())
        assert pod.worker.requests[-1][0].priority == 0


async def test_openai_client_streaming(pod: Pod) -> None:
    async with pod.client() as client:
        stream = await client.chat.completions.create(
            **question(), stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert words == ["", "red", " disc", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 22


async def test_choices_reach_the_client_apart(pod: Pod) -> None:
    pod.worker.answer = (
        TokenEvent(index=1, text="b", token_ids=(1,)),
        TokenEvent(index=0, text="a", token_ids=(1,)),
        FinishEvent(index=1, reason="length", usage=None),
        TokenEvent(index=0, text="aa", token_ids=(1,)),
        FinishEvent(index=0, reason="stop", usage=USAGE),
    )
    async with pod.client() as client:
        answer = await client.chat.completions.create(**question(n=2))
        texts = [choice.message.content for choice in answer.choices]
        reasons = [choice.finish_reason for choice in answer.choices]
        assert (texts, reasons) == (["aaa", "b"], ["stop", "length"])
        assert pod.worker.requests[-1][0].sampling.n == 2
        stream = await client.chat.completions.create(**question(n=2), stream=True)
        choices = [chunk.choices[0] async for chunk in stream]
    assert [c.index for c in choices if c.delta.content] == [1, 0, 0]
    assert [c.index for c in choices if c.finish_reason] == [1, 0]


async def test_an_answer_can_be_sent_back(pod: Pod) -> None:
    async with pod.client() as client:
        answer = await client.chat.completions.create(**question())
        turn = question()["messages"][0]
        messages = [turn, answer.choices[0].message.model_dump(), turn]
        await client.chat.completions.create(model="demo", messages=messages)  # type: ignore[arg-type]
    assert [turn.role for turn in pod.worker.requests[-1][0].messages] == [
        "user", "assistant", "user",
    ]  # fmt: skip


async def test_logprobs(pod: Pod) -> None:
    await pod.chat(question(logprobs=True, top_logprobs=2))
    assert pod.worker.requests[-1][0].sampling.logprobs == 2


async def test_many_at_once(pod: Pod) -> None:
    answers = await asyncio.gather(
        *(pod.chat(question(stream=False, temperature=0)) for _ in range(50))
    )
    assert {status for status, _ in answers} == {200}
    assert len({body["id"] for _, body in answers}) == 50
    assert pod.worker.answer == ANSWER
    assert isinstance(ANSWER[-1], FinishEvent)
    assert ANSWER[-1].usage == USAGE
