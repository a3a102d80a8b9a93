"""A log line names what it is about, and repeats nobody's words."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
from chiasm_contract import logs

CANARY = "zanzibar"


def line(message: str = "m", error: BaseException | None = None, **fields: object) -> dict:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("chiasm", logging.ERROR, "f", 1, message, (), exc_info)
    record.fields = fields
    read: dict[str, object] = json.loads(logs.JsonFormatter().format(record))
    return read


def failed() -> BaseException:
    try:
        try:
            raise ValueError(CANARY)
        except ValueError as error:
            raise RuntimeError(f"again {CANARY}") from error
    except RuntimeError as error:
        return error


def test_an_exception_has_a_place_and_no_words() -> None:
    read = line(error=failed())
    assert read["error"] == "RuntimeError from ValueError"
    assert "test_logs.py" in str(read["traceback"])
    assert CANARY not in json.dumps(read)


def test_a_chain_that_bites_its_tail_ends() -> None:
    error = ValueError()
    error.__context__ = RuntimeError()
    error.__context__.__context__ = error
    assert logs.error_fields(error)["error"] == "ValueError from RuntimeError"


async def test_each_task_has_its_own_fields() -> None:
    async def about(name: str) -> dict:
        logs.bind(answer_id=name, trace_id="", request_id=None)
        await asyncio.sleep(0)
        return line()

    one, two = await asyncio.gather(about("one"), about("two"))
    assert (one["answer_id"], two["answer_id"]) == ("one", "two")
    assert "trace_id" not in one
    assert "request_id" not in one
    assert "answer_id" not in line()


async def test_tasks_and_threads_that_a_task_begins_are_about_the_same() -> None:
    async def work() -> tuple[dict, dict, dict]:
        logs.bind(answer_id="one")
        with ThreadPoolExecutor(1) as pool:
            thread = pool.submit(copy_context().run, line).result()
        return thread, await asyncio.to_thread(line), await asyncio.create_task(later())

    async def later() -> dict:
        return line()

    found = await asyncio.create_task(work())
    assert [each["answer_id"] for each in found] == ["one"] * 3


def test_a_lines_own_fields_win() -> None:
    def inside() -> dict:
        logs.bind(status=1, answer_id="a")
        return line(status=2)

    read = copy_context().run(inside)
    assert (read["status"], read["answer_id"]) == (2, "a")


def test_other_formatters_find_the_fields_on_the_record() -> None:
    record = logging.LogRecord("chiasm", logging.INFO, "f", 1, "m", (), None)

    def inside() -> bool:
        logs.bind(resource="vision/shelf-reader")
        return logs.BoundFields().filter(record)

    assert copy_context().run(inside)
    assert record.__dict__["resource"] == "vision/shelf-reader"


async def test_what_nobody_awaits_is_told_without_words(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    logs.tell_lost_errors(loop)

    async def fail() -> None:
        raise ValueError(CANARY)

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    (record,) = [each for each in caplog.records if each.name == "chiasm.loop"]
    text = logs.JsonFormatter().format(record)
    assert CANARY not in text
    assert json.loads(text)["error"] == "ValueError"
