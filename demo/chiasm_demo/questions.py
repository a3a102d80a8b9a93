"""Questions about a scene and their answers, by kind.

`ask(scene, kind, rng)` gives one question with the answer that follows from the scene, or None
when the scene allows no question of that kind (nothing has a unique name, say). The answers are
short: "red circle", "top left", "3", "yes", "2.49".

Knows nothing of pixels, tokens or models. Invariant: a question has exactly one right answer; what
is not unique is not asked about.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from chiasm_demo.outside import ANSWER as UNKNOWN_ANSWER
from chiasm_demo.outside import ask_outside
from chiasm_demo.scene import COLOURS, NUM_SLOTS, SHAPES, Item, Scene, slot_name

NOTHING = "nothing"
NO_PRICE = "no price"
ABSENT = "there is none"

_ABSENT_SHARE = 0.08
"""How many of the questions about a named item are about one that is not there."""


@dataclass(frozen=True)
class Question:
    """A question as the user types it, and the only right answer."""

    kind: str
    text: str
    answer: str


def ask(scene: Scene, kind: str, rng: random.Random, *, held_out: bool = False) -> Question | None:
    """One question of `kind` about `scene`; `held_out`: foreign questions never trained on."""
    if kind == "unknown":
        pair: tuple[str, str] | None = (ask_outside(rng, held_out=held_out), UNKNOWN_ANSWER)
    else:
        pair = _ASKERS[kind](scene, rng)
    if pair is None:
        return None
    return Question(kind, _as_typed(pair[0], rng), pair[1])


def describe(scene: Scene) -> str:
    """Everything on the shelf in reading order: "top left red circle 2.49, middle blue star"."""
    return ", ".join(
        f"{slot_name(slot)} {item.name}" + (f" {item.price}" if item.price else "")
        for slot, item in scene.items()
    )


def names_of(scene: Scene) -> dict[str, int]:
    """Every name that means exactly one item of the scene -> that item's slot."""
    meant: dict[str, set[int]] = {}
    for slot, item in scene.items():
        for name in (item.name, item.shape, f"{item.colour} thing"):
            meant.setdefault(name, set()).add(slot)
    return {name: slots.pop() for name, slots in meant.items() if len(slots) == 1}


def _absent_name(scene: Scene, rng: random.Random) -> str | None:
    """A full name that nothing on the shelf has."""
    present = {item.name for _, item in scene.items()}
    name = Item(rng.choice(SHAPES), rng.choice(COLOURS)).name
    return None if name in present else name


def _some_name(
    scene: Scene, rng: random.Random, without: str | None = None
) -> tuple[str, int] | None:
    """A unique name and its slot; `without` leaves out names that give the answer away."""
    names = names_of(scene)
    if without == "colour":
        names = {name: slot for name, slot in names.items() if name in SHAPES}
    elif without == "shape":
        names = {name: slot for name, slot in names.items() if name.endswith(" thing")}
    return rng.choice(sorted(names.items())) if names else None


def _ask_what(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    slots = scene.slots()
    filled = [slot for slot, item in enumerate(slots) if item is not None]
    slot = rng.choice(filled) if rng.random() < 0.85 else rng.randrange(NUM_SLOTS)
    item = slots[slot]
    place = slot_name(slot)
    text = _choose(
        rng,
        "what is at the {p}",
        "what is in the {p}",
        "what do you see at the {p}",
        "which item is at the {p}",
        "what's at the {p}",
        "what can you see in the {p}",
        "name the item at the {p}",
    ).format(p=place)
    return text, item.name if item else NOTHING


def _ask_where(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    if rng.random() < _ABSENT_SHARE:
        absent = _absent_name(scene, rng)
        return (_where(absent, rng), ABSENT) if absent else None
    found = _some_name(scene, rng)
    return (_where(found[0], rng), slot_name(found[1])) if found else None


def _where(name: str, rng: random.Random) -> str:
    return _choose(
        rng,
        "where is the {n}",
        "where's the {n}",
        "where do you see the {n}",
        "where is the {n} in the picture",
        "where on the shelf is the {n}",
        "where can I find the {n}",
    ).format(n=name)


def _ask_colour(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    word = rng.choice(("colour", "color"))
    if rng.random() < 0.3:
        slot, item = rng.choice(scene.items())
        text = f"what {word} is the {_thing(rng)} at the {slot_name(slot)}"
        return text, item.colour
    if rng.random() < _ABSENT_SHARE:
        missing = sorted(set(SHAPES) - {item.shape for _, item in scene.items()})
        return (f"what {word} is the {rng.choice(missing)}", ABSENT) if missing else None
    found = _some_name(scene, rng, without="colour")
    if found is None:
        return None
    text = _choose(
        rng, "what {w} is the {n}", "what is the {w} of the {n}", "which {w} does the {n} have"
    ).format(w=word, n=found[0])
    return text, dict(scene.items())[found[1]].colour


def _ask_shape(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    if rng.random() < 0.3:
        slot, item = rng.choice(scene.items())
        return f"what shape is the {_thing(rng)} at the {slot_name(slot)}", item.shape
    found = _some_name(scene, rng, without="shape")
    if found is None:
        return None
    colour = found[0].removesuffix(" thing")
    text = _choose(
        rng,
        "what shape is the {c} {t}",
        "what is the shape of the {c} {t}",
        "which shape does the {c} {t} have",
    ).format(c=colour, t=_thing(rng))
    return text, dict(scene.items())[found[1]].shape


def _ask_count(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    items = [item for _, item in scene.items()]
    present = rng.choice(items)
    colour = present.colour if rng.random() < 0.75 else rng.choice(COLOURS)
    shape = present.shape if rng.random() < 0.75 else rng.choice(SHAPES)
    about = rng.choice(("all", "colour", "shape", "shape"))
    if about == "all":
        plural, number = rng.choice(("things", "items", "objects")), len(items)
    elif about == "colour":
        plural = f"{colour} {rng.choice(('things', 'items', 'objects'))}"
        number = sum(item.colour == colour for item in items)
    else:
        plural = _plural(shape)
        number = sum(item.shape == shape for item in items)
    text = _choose(
        rng,
        "how many {n} are there",
        "how many {n} do you see",
        "how many {n} are on the shelf",
        "how many {n} are in the picture",
        "count the {n}",
        "how many {n}",
    ).format(n=plural)
    return text, str(number)


def _ask_relation(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    names = names_of(scene)
    relation = rng.choice(tuple(_RELATIONS))
    words, row_step, column_step = _RELATIONS[relation]
    word = rng.choice(words)
    if rng.random() < 0.5 and len(set(names.values())) >= 2:
        one, other = rng.sample(sorted(names.items()), 2)
        if one[1] == other[1]:
            return None
        holds = _holds(one[1], other[1], row_step, column_step)
        return f"is the {one[0]} {word} the {other[0]}", "yes" if holds else "no"
    found = _some_name(scene, rng)
    if found is None:
        return None
    beside = _nearest(scene, found[1], row_step, column_step)
    start = rng.choice(("what is", "which item is", "what do you see"))
    return f"{start} {word} the {found[0]}", beside.name if beside else NOTHING


_RELATIONS = {
    "left": (("left of", "to the left of"), 0, -1),
    "right": (("right of", "to the right of"), 0, 1),
    "above": (("above", "over"), -1, 0),
    "below": (("below", "under"), 1, 0),
}


def _holds(one: int, other: int, row_step: int, column_step: int) -> bool:
    """Whether slot `one` lies strictly on that side of slot `other`, in any row or column."""
    rows, columns = one // 3 - other // 3, one % 3 - other % 3
    return rows * row_step + columns * column_step > 0


def _nearest(scene: Scene, slot: int, row_step: int, column_step: int) -> Item | None:
    """The first item met when walking from `slot` in a straight line."""
    slots = scene.slots()
    row, column = slot // 3 + row_step, slot % 3 + column_step
    while 0 <= row < 3 and 0 <= column < 3:
        item = slots[3 * row + column]
        if item is not None:
            return item
        row, column = row + row_step, column + column_step
    return None


def _ask_number(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    if rng.random() < 0.3:
        slot, item = rng.choice(scene.items())
        place = f"at the {slot_name(slot)}"
        text = _choose(
            rng,
            "how much is the {t} {p}",
            "what does the {t} {p} cost",
            "what price is {p}",
            "what number is {p}",
            "what does the label {p} say",
        ).format(t=_thing(rng), p=place)
        return text, item.price or NO_PRICE
    found = _some_name(scene, rng)
    if found is None:
        return None
    text = _choose(
        rng,
        "how much is the {n}",
        "how much does the {n} cost",
        "what does the {n} cost",
        "what is the price of the {n}",
        "what does the label of the {n} say",
        "what number is below the {n}",
        "read the price of the {n}",
    ).format(n=found[0])
    return text, dict(scene.items())[found[1]].price or NO_PRICE


def _ask_describe(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    text = _choose(
        rng,
        "describe the picture",
        "describe the shelf",
        "what is on the shelf",
        "what do you see",
        "what is in the picture",
        "list all items",
    )
    return text, describe(scene)


_ASKERS: dict[str, Callable[[Scene, random.Random], tuple[str, str] | None]] = {
    "what": _ask_what,
    "where": _ask_where,
    "colour": _ask_colour,
    "shape": _ask_shape,
    "count": _ask_count,
    "relation": _ask_relation,
    "number": _ask_number,
    "describe": _ask_describe,
}
KINDS = ("what", "where", "colour", "shape", "count", "relation", "number", "unknown")
"""The kinds whose accuracy is promised; "describe" is asked in training and answered as well."""


def _choose(rng: random.Random, *templates: str) -> str:
    return rng.choice(templates)


def _thing(rng: random.Random) -> str:
    return rng.choice(("thing", "item", "object"))


def _plural(shape: str) -> str:
    return shape + ("es" if shape == "cross" else "s")


def _as_typed(text: str, rng: random.Random) -> str:
    """The same words as people type them: with or without capital and question mark."""
    if rng.random() < 0.7:
        text = text[0].upper() + text[1:]
    mark = "." if text.lower().startswith(("count", "name", "read", "describe", "list")) else "?"
    return text + mark if rng.random() < 0.8 else text
