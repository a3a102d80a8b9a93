"""A stage that is left out has nothing to do, and the others do what they do anyway."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from chiasm_worker.decay.fit import fitted
from chiasm_worker.decay.measuring import measure
from chiasm_worker.decay.stages import Stages
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared, ask


@pytest.fixture
def stages(prepared: Callable[[str], Prepared]) -> Stages:
    return Stages(prepared("qwen3-grouped").model, itertools.count().__next__)


@pytest.fixture
def conversation(picture: Callable[..., bytes]) -> Conversation:
    return ask("What is it?", [picture(1), picture(2)])


def encodes(stages: Stages) -> int:
    return stages._engine.runner.encoding.num_items


def test_whole_and_encoder(stages: Stages, conversation: Conversation) -> None:
    visual, text = stages.tokens(conversation)
    assert visual > 0
    assert text > 0
    stages.whole(conversation)
    assert encodes(stages) == 2
    tokens = stages._engine.totals.step_tokens
    stages.without_encoder(conversation)
    assert encodes(stages) == 2
    # Nothing of the prompt is found: it is prefilled again each time.
    assert stages._engine.totals.step_tokens == 3 * tokens


def test_positions_are_remembered(
    stages: Stages, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = type(stages._plain.model.family)
    calls: list[int] = []
    positions = family.positions

    def counted(self: object, num_tokens: int, *arguments: object) -> object:
        calls.append(num_tokens)
        return positions(self, num_tokens, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(family, "positions", counted)
    stages.without_positions(conversation)
    assert len(calls) == 1
    assert encodes(stages) == 2


def test_files_are_read_once(
    stages: Stages, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chiasm_worker.modality import request_media

    decoded: list[int] = []
    decode = request_media.decode_image

    def counted(data: bytes, limits: object, index: int) -> object:
        decoded.append(index)
        return decode(data, limits, index)  # type: ignore[arg-type]

    monkeypatch.setattr(request_media, "decode_image", counted)
    stages.without_reading(conversation)
    assert decoded == [0, 1]


def test_what_was_asked_before_is_not_prefilled(stages: Stages, conversation: Conversation) -> None:
    stages.without_prefill(conversation)
    engine = stages._remembering
    visual, text = stages.tokens(conversation)
    hits = engine.scheduler.counters.prefix_hit_tokens
    assert visual + text - hits <= engine.spec.block_size
    assert engine.runner.encoding.num_items == 2


def test_all_of_it_where_seconds_are_prefilled_tokens(
    prepared: Callable[[str], Prepared],
) -> None:
    """With such a clock latency grows with all tokens, and only prefill drives it."""
    model = prepared("qwen3-grouped").model
    engines: list[Engine] = []
    stages = Stages(model, lambda: float(sum(engine.totals.step_tokens for engine in engines)))
    engines += [stages._engine, stages._remembering]
    told: list[str] = []
    readings = measure(stages, model.max_positions, 1, 0, told.append)
    assert told == ["round 1 of 1", "stages left out one by one"]
    assert [p.seconds for p in readings.points] == [
        p.visual_tokens + p.text_tokens for p in readings.points
    ]
    decay = fitted(readings, "tiny", "counted", 1)
    assert decay.better == "affine"
    assert decay.affine.error_mean < 0.1
    drivers = readings.drivers
    assert (drivers["reading"], drivers["positions"], drivers["encoder"]) == (0, 0, 0)
    assert drivers["prefill"] == pytest.approx(1, abs=0.1)
