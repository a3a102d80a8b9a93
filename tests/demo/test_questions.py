"""Every answer is checked against a second, naive reading of the scene."""

import random
import re

import pytest
from chiasm_demo.outside import ANSWER as UNKNOWN
from chiasm_demo.questions import (
    ABSENT,
    KINDS,
    NO_PRICE,
    NOTHING,
    ask,
    describe,
    names_of,
)
from chiasm_demo.scene import COLOURS, SHAPES, Item, Scene, sample_scene, slot_name
from hypothesis import given, settings
from hypothesis import strategies as st

PLACES = {slot_name(slot): slot for slot in range(9)}
PLACE = re.compile(r"(?:top|bottom) (?:left|middle|right)|middle left|middle right|middle")


def meant(scene: Scene, text: str) -> list[tuple[int, Item]]:
    """Items that a noun phrase fits: "red circle", "circle", "red thing"."""
    words = text.split()
    colour = next((word for word in words if word in COLOURS), None)
    shape = next((word for word in words if word in SHAPES), None)
    return [
        (slot, item)
        for slot, item in enumerate(scene.slots())
        if item and colour in (None, item.colour) and shape in (None, item.shape)
    ]


def subject(scene: Scene, text: str) -> list[tuple[int, Item]]:
    """What a question is about: the place it names, or the noun phrase it contains."""
    place = PLACE.search(text)
    if place:
        item = scene.slots()[PLACES[place.group()]]
        return [(PLACES[place.group()], item)] if item else []
    return meant(scene, text)


def expected(scene: Scene, kind: str, text: str) -> str:
    text = text.lower().rstrip("?.")
    if kind == "count":
        text = re.sub(r"(circle|square|triangle|star|heart|diamond|cross|moon)e?s\b", r"\1", text)
        return str(len(meant(scene, text)))
    if kind == "relation":
        return related(scene, text)
    about = subject(scene, text)
    if kind == "what":
        return about[0][1].name if about else NOTHING
    if not about:
        return ABSENT
    assert len(about) == 1, "ambiguous questions must not be asked"
    slot, item = about[0]
    return {
        "where": slot_name(slot),
        "colour": item.colour,
        "shape": item.shape,
        "number": item.price or NO_PRICE,
    }[kind]


def related(scene: Scene, text: str) -> str:
    sides = {"left": (0, -1), "right": (0, 1), "above|over": (-1, 0), "below|under": (1, 0)}
    word, (rows, columns) = next(
        (found.group(), step)
        for pattern, step in sides.items()
        if (found := re.search(rf"\b({pattern})\b", text))
    )
    before, after = text.split(word, 1)
    if before.startswith("is the"):
        ((one, _),), ((other, _),) = meant(scene, before), meant(scene, after)
        distance = (one // 3 - other // 3) * rows + (one % 3 - other % 3) * columns
        return "yes" if distance > 0 else "no"
    ((slot, _),) = meant(scene, after)
    on_line = [
        ((s // 3 - slot // 3) * rows + (s % 3 - slot % 3) * columns, item)
        for s, item in enumerate(scene.slots())
        if item and (s % 3 == slot % 3 if rows else s // 3 == slot // 3)
    ]
    ahead = sorted(((d, item) for d, item in on_line if d > 0), key=lambda pair: pair[0])
    return ahead[0][1].name if ahead else NOTHING


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS[:-1]))
def test_answers_agree_with_a_naive_reading(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    scene = sample_scene(rng)
    for _ in range(8):
        question = ask(scene, kind, rng)
        if question is not None:
            assert question.answer == expected(scene, kind, question.text), (scene, question)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_asked_about_most_scenes(kind: str) -> None:
    scenes = [sample_scene(random.Random(seed)) for seed in range(300)]
    asked = [ask(scene, kind, random.Random(seed)) for seed, scene in enumerate(scenes)]
    assert sum(question is not None for question in asked) > 200


def test_foreign_questions_are_answered_with_ignorance() -> None:
    question = ask(sample_scene(random.Random(1)), "unknown", random.Random(2), held_out=True)
    assert question is not None
    assert question.answer == UNKNOWN


def test_unique_names_mean_exactly_one_item() -> None:
    scene = Scene(
        168,
        168,
        ((Item("circle", "red"), Item("circle", "blue")), (Item("star", "red"), None)),
    )
    assert names_of(scene) == {
        "red circle": 0,
        "blue circle": 2,
        "red star": 6,
        "star": 6,
        "blue thing": 2,
    }


def test_a_description_lists_everything_in_reading_order() -> None:
    scene = Scene(168, 168, ((Item("circle", "red", "2.49"), None), (None, Item("moon", "blue"))))
    assert describe(scene) == "top left red circle 2.49, bottom right blue moon"
