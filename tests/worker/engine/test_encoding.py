"""New pictures of a step share encoder calls, each picture is encoded once, and tokens stay."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Prepared, Reference, ask
from chiasm_worker.models.base import Family, OneByOne
from chiasm_worker.models.registry import FAMILIES
from chiasm_worker.models.tiny import TINY_MODELS
from chiasm_worker.request import SamplingParams
from PIL import Image

# A family whose tower takes pictures packed, one whose tower takes equal sizes stacked.
NAMES = ["qwen3-grouped", "qwen2.5-window", "qwen2-grouped", "llava-clip-llama"]
SIZES = [(64, 48), (64, 48), (120, 60), (60, 120), (90, 90)]


def saved(png: bytes, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(buffer, kind, **options)
    return buffer.getvalue()


def answers(model: Prepared, engine: Engine, pictures: Sequence[bytes]) -> list[list[int]]:
    asked = [ask(f"What is picture {i}?", [each]) for i, each in enumerate(pictures)]
    return model.generate(engine, asked, 10)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_keeps_every_greedy_token(
    name: str,
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    picture: Callable[..., bytes],
):
    model = prepared(name)
    pictures = [picture(i, *size) for i, size in enumerate(SIZES)]
    engine = model.engine()
    want = [
        reference(name).generate(ask(f"What is picture {i}?", [each]), 10)
        for i, each in enumerate(pictures)
    ]
    assert answers(model, engine, pictures) == want
    encoding = engine.runner.encoding
    assert (encoding.num_items, encoding.num_batches) == (5, 1)
    assert encoding.num_padding_rows == 0
    assert encoding.num_rows >= sum(
        span.item.num_tokens
        for each in pictures
        for span in model.prompt(ask("x", [each]))[0].spans
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_differs_from_one_by_one_by_rounding_only(
    name: str, prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    model = prepared(name)
    encoder = model.model.encoder
    shown = [ask("x", [picture(i, *size)]) for i, size in enumerate(SIZES)]
    inputs = [model.prompt(each)[1][0].tensors() for each in shown]
    assert len({encoder.batch_key(each) for each in inputs}) == 1
    with torch.inference_mode():
        together = encoder.encode_batch(inputs).features
        for each, features in zip(inputs, together, strict=True):
            # fp32: sums of up to a few hundred products in another order.
            (alone,) = encoder.encode_batch([each]).features
            torch.testing.assert_close(features, alone, rtol=1e-4, atol=1e-4)


def test_pictures_of_other_sizes_do_not_pad_each_other(prepared: Callable[[str], Prepared]):
    encoder = prepared("llava-clip-llama").model.encoder
    small, large = torch.zeros(1, 3, 56, 56), torch.zeros(1, 3, 56, 84)
    keys = {encoder.batch_key({"pixel_values": pixels}) for pixels in (small, large, small)}
    assert len(keys) == 2


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_an_encoder_does_not_know_fails(family: Family, prepared: Callable[[str], Prepared]):
    """The fault: encoders that call one another for an input that none of them takes."""
    name = next(tiny.name for tiny in TINY_MODELS if tiny.family == family.name)
    with pytest.raises((KeyError, TypeError)):
        prepared(name).model.encoder.encode_batch([{"pixels_of_another_kind": torch.zeros(1)}])


def test_an_encoder_of_single_items_gets_one_at_a_time(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    class Alone(OneByOne):
        def encode(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
            (features,) = model.model.encoder.encode_batch([inputs]).features
            return features

    model = prepared("qwen3-grouped")
    pictures = [picture(i, *size) for i, size in enumerate(SIZES)]
    want = answers(model, model.engine(), pictures)
    engine = model.engine()
    engine.runner.encoding._encoder = Alone()
    assert answers(model, engine, pictures) == want
    assert engine.runner.encoding.num_batches == 5


def test_one_picture_in_many_files_and_places_at_once_is_encoded_once(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    model = prepared("qwen3-grouped")
    png = picture(1, 80, 60)
    files = [png, saved(png, "BMP"), saved(png, "WEBP", lossless=True), saved(png, "PNG")]
    engine = model.engine()
    for i, each in enumerate(files):
        model.add(engine, f"r{i}", ask(f"{i}", [each, files[0]]), SamplingParams(4))
    engine.step()
    assert engine.scheduler.num_running == len(files)
    assert engine.runner.encoding.num_items == 1
    while engine.has_requests:
        engine.step()
    assert engine.runner.encoding.num_items == 1


def test_costs_are_learned_from_what_runs(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    model = prepared("qwen3-grouped")
    engine = model.engine()
    guess = engine.pool.costs.seconds_per_token("image")
    answers(model, engine, [picture(1)])
    learned = {name: engine.pool.costs.seconds_per_token(name) for name in ("text", "image")}
    assert guess not in learned.values()
    assert engine.runner.encoding.seconds > 0
