"""The shipped folder: small, complete, loadable offline, and what it answers is an answer."""

import json
from pathlib import Path

import pytest
import torch
from chiasm_demo.evaluation import Asked, answer, held_out
from chiasm_demo.fonts import MissingFontsError
from chiasm_demo.model_config import MAX_PIXELS, MIN_PIXELS
from chiasm_demo.questions import KINDS, Question
from chiasm_demo.shipping import MAX_TOTAL_BYTES, load
from PIL import Image
from safetensors import safe_open
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

DEMO = Path(__file__).parents[2] / "demo"
MODEL = DEMO / "model"

Loaded = tuple[Qwen3VLForConditionalGeneration, Qwen3VLProcessor]


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(MODEL)


def samples() -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads((DEMO / "pictures" / "questions.json").read_text())
    return listed


def asked(entry: dict[str, str]) -> Asked:
    picture = Image.open(DEMO / "pictures" / entry["picture"]).convert("RGB")
    return Asked(picture, Question(entry["kind"], entry["text"], entry["answer"]))


def test_the_folder_is_small_and_complete() -> None:
    files = {path.name: path.stat().st_size for path in MODEL.iterdir()}
    assert sum(files.values()) <= MAX_TOTAL_BYTES
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "processor_config.json",
        "chat_template.jinja",
    } <= set(files)


def test_storage_is_exact_in_float32(loaded: Loaded) -> None:
    parameters = dict(loaded[0].named_parameters())
    with safe_open(MODEL / "model.safetensors", framework="pt") as stored:
        for name in stored.keys():  # noqa: SIM118
            assert stored.get_tensor(name).dtype == torch.bfloat16
            assert torch.equal(parameters[name], stored.get_tensor(name).float())


@pytest.mark.parametrize("size", [(112, 112), (224, 224), (150, 213), (1600, 900), (60, 80)])
def test_any_picture_ends_up_in_the_trained_range(loaded: Loaded, size: tuple[int, int]) -> None:
    processor = loaded[1]
    inputs = processor.image_processor([Image.new("RGB", size)], return_tensors="pt")
    _, rows, columns = inputs["image_grid_thw"][0].tolist()
    assert rows % 2 == columns % 2 == 0
    assert MIN_PIXELS * 0.9 <= rows * columns * 14 * 14 <= MAX_PIXELS


def test_samples_are_ten_pictures_with_questions() -> None:
    entries = samples()
    pictures = {entry["picture"] for entry in entries}
    assert pictures == {path.name for path in (DEMO / "pictures").glob("*.png")}
    assert len(pictures) == 10
    assert {entry["kind"] for entry in entries} == set(KINDS)


def test_an_answer_does_not_depend_on_the_batch(loaded: Loaded) -> None:
    batch = [asked(entry) for entry in samples()[:6]]
    together = answer(*loaded, batch)
    assert together == [answer(*loaded, [one])[0] for one in batch]
    assert all(together)


def test_held_out_questions_are_of_the_kind_and_repeatable() -> None:
    from chiasm_demo.drawing import load_style
    from chiasm_demo.scene import Split

    try:
        style = load_style(Split.HELD_OUT)
    except MissingFontsError as missing:
        pytest.skip(str(missing))
    first, again = (held_out("number", 3, style) for _ in range(2))
    assert [one.question for one in first] == [one.question for one in again]
    assert all(one.question.kind == "number" for one in first)
    assert all(112 <= side <= 224 for one in first for side in one.picture.size)
