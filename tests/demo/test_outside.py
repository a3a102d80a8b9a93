"""Foreign questions: the held-out ones share no noun with those trained on, and stay foreign."""

import random

from chiasm_demo import outside
from chiasm_demo.scene import COLOURS, SHAPES


def test_held_out_nouns_are_new() -> None:
    train, held_out = set(outside._TRAIN_NOUNS), set(outside._HELD_OUT_NOUNS)
    assert not train & held_out
    assert len(held_out) > 40


def test_no_foreign_noun_is_part_of_the_models_world() -> None:
    nouns = set(outside._TRAIN_NOUNS) | set(outside._HELD_OUT_NOUNS)
    assert not nouns & {*SHAPES, "thing", "item", "object"}
    assert nouns & set(COLOURS) <= {"orange"}  # a fruit, too


def test_the_same_generator_asks_the_same() -> None:
    for held_out in (False, True):
        first = [outside.ask_outside(random.Random(s), held_out=held_out) for s in range(50)]
        again = [outside.ask_outside(random.Random(s), held_out=held_out) for s in range(50)]
        assert first == again
        assert len(set(first)) > 25
