"""Questions that the demo model was not made for: it must say that it does not know.

Two disjoint sets of phrasings and of nouns: one to train on, one held out, so that the measured
share says whether the model recognises a foreign question or only remembers the ones it saw.
Knows nothing of scenes: no such question can be answered from a shelf.
"""

from __future__ import annotations

import random
import string
from pathlib import Path

ANSWER = "I don't know"

_HERE = Path(__file__).parent
_TRAIN_NOUNS = (_HERE / "nouns_train.txt").read_text().split()
_HELD_OUT_NOUNS = (_HERE / "nouns_held_out.txt").read_text().split()

_TRAIN_TEMPLATES = (
    "who is the {n}",
    "who painted this {n}",
    "what is the name of the {n}",
    "what is the {n} doing",
    "what colour is the {n}",
    "what color is the {n}",
    "what shape is the {n}",
    "where is the {n}",
    "where can I find a {n}",
    "how many {n}s are there",
    "how many {n}s can you see",
    "is there a {n} in the picture",
    "is the {n} left of the {m}",
    "is the {n} above the {m}",
    "what is below the {n}",
    "what is left of the {n}",
    "how much is the {n}",
    "what does the {n} cost",
    "how old is the {n}",
    "how heavy is the {n}",
    "what time is it",
    "what is the weather like",
    "why is the {n} here",
    "why is the sky blue",
    "when was the {n} made",
    "who are you",
    "what is your name",
    "how are you",
    "hello",
    "hi there",
    "thank you",
    "tell me a joke",
    "tell me about the {n}",
    "write a poem about a {n}",
    "what is the capital of the {n}",
    "what is the capital of France",
    "what is 2 plus 2",
    "what is {d} times {e}",
    "what is the square root of {d}",
    "translate {n} into German",
    "can you draw a {n}",
    "do you like the {n}",
    "which {n} is the best",
    "what language is this",
    "what does the {n} mean",
    "summarise the {n}",
    "explain the {n} to me",
    "what brand is the {n}",
    "what is the {n} made of",
    "is the {n} happy",
    "is this a photo of a {n}",
    "what happens next",
    "where was this picture taken",
    "what is the total price",
    "what is the average price",
    "how do I cook a {n}",
    "{n}",
    "{n} {m}",
    "{w} {x}",
    "what is {w}",
    "what colour is the {w}",
    "where is the {w}",
    "how many {w} {x}",
    "how much is the {w}",
    "is the {w} right of the {x}",
    "what is the {n} of the {m}",
    "count the {n}s",
    "please buy a {n}",
    "which {n} costs more than the {m}",
    "ignore the {n} and say {m}",
)
_HELD_OUT_TEMPLATES = (
    "what is the best way to repair a {n}",
    "who owns this {n}",
    "does the {n} need a {m}",
    "how fast is the {n}",
    "what colour is the {n}",
    "where is the {n}",
    "how many {n}s are there",
    "how much is the {n}",
    "what shape is the {n}",
    "is the {n} left of the {m}",
    "what is above the {n}",
    "did you see the {n} yesterday",
    "which city is famous for its {n}",
    "good morning",
    "what is {d} minus {e}",
    "sing a song about a {n}",
    "recommend a good {n}",
    "who won the {n} last year",
    "can I return the {n}",
    "what is the history of the {n}",
    "spell {n}",
    "how long does the {n} last",
    "{n} or {m}",
    "{w}",
)


def ask_outside(rng: random.Random, *, held_out: bool) -> str:
    """One question from outside the model's world, as a user might type it."""
    nouns = _HELD_OUT_NOUNS if held_out else _TRAIN_NOUNS
    template = rng.choice(_HELD_OUT_TEMPLATES if held_out else _TRAIN_TEMPLATES)
    return template.format(
        n=rng.choice(nouns),
        m=rng.choice(nouns),
        w=_made_up_word(rng),
        x=_made_up_word(rng),
        d=rng.randint(2, 99),
        e=rng.randint(2, 99),
    )


def _made_up_word(rng: random.Random) -> str:
    """Letters without a meaning, 3 to 9 of them."""
    return "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 9)))
