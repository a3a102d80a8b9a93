"""The figures of bad canaries, put together: what nobody measured is no figure."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

LOST = {"requests": 10, "requests_lost": 1, "streams_cut": 0, "stable_untouched": True}
SEEN = {**LOST, "found": True, "seconds_to_zero": 0.5, "seconds_visible_to_zero": 4.0}
JUDGED = {**LOST, "found": True, "seconds_to_zero": 0.75}
BY_HAND = {**LOST, "found": True, "seconds_to_zero": 9.0}
NOT_FOUND = {**LOST, "found": False}


@pytest.fixture
def canary_abort(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    return importlib.import_module("canary_abort")


def test_a_verdict_makes_no_fault_visible(canary_abort: Any) -> None:
    found = {"by_hand": BY_HAND, "crashing": SEEN, "slow": JUDGED, "wrong": NOT_FOUND}
    told = canary_abort.summary(found, 6.0)
    assert (told["seconds_to_zero"], told["seconds_visible_to_zero"]) == (0.75, 4.0)
    assert told["seconds_to_zero_by_hand"] == 9.0
    assert (told["requests"], told["requests_lost"], told["requests_per_second"]) == (40, 4, 6.0)
    assert told["not_found"] == ["wrong"]


def test_what_was_not_found_has_no_time(canary_abort: Any) -> None:
    told = canary_abort.summary({"slow": NOT_FOUND, "crashing": NOT_FOUND}, 6.0)
    assert (told["seconds_to_zero"], told["seconds_visible_to_zero"]) == (None, None)
    assert told["not_found"] == ["slow", "crashing"]


def test_the_pace_is_that_of_the_published_run(canary_abort: Any) -> None:
    assert canary_abort.arguments([]).per_second == 6
