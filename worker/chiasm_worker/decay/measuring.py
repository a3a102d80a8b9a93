"""Measures a model's decay: ratios in turn, round after round, then the stages one by one.

Rounds are interleaved, so that what a machine does beside it meets every ratio alike, and of each
the least is taken: whatever happens beside it only adds. Pictures are new in every round, so that
nothing of them is in a cache.

Must not know: how a stage is left out, how curves are fitted.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from chiasm_worker.decay.drivers import Ends, shares
from chiasm_worker.decay.record import Measured
from chiasm_worker.decay.stages import Stages
from chiasm_worker.equality import Conversation, ask

# (pictures, pixels a side): visual tokens from half to many times those of the words. Without any
# there is no ratio: such prompts take another way.
SHOWN = (
    (1, 112), (1, 168), (1, 224), (2, 224), (3, 224), (4, 224), (6, 224), (8, 224),
    (11, 224), (14, 224),
)  # fmt: skip
_WORDS = "Which of these things is the dearest, and what does it cost?"
_FARTHEST = 0.95
"""Of the positions that the model has: prompts beyond that are left out."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Readings:
    """What was measured."""

    points: tuple[Measured, ...]
    drivers: dict[str, float]


def measure(stages: Stages, max_tokens: int, repeats: int, seed: int, told: Told) -> Readings:
    """Seconds at each ratio, and the stages' shares of their growth.

    Args:
        max_tokens: positions that the model has.
        told: hears how far it is.

    Raises: ValueError when latency does not grow with the ratio.
    """
    rng = random.Random(seed)  # noqa: S311 - pictures, not secrets
    kinds = _kinds(stages, int(_FARTHEST * max_tokens), rng)
    for kind in kinds:  # the first ones ever touch memory that nobody has touched
        stages.whole(_conversation(rng, *kind))
    seconds: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    for number in range(repeats):
        for kind in rng.sample(kinds, len(kinds)):
            seconds[kind].append(stages.whole(_conversation(rng, *kind)))
        told(f"round {number + 1} of {repeats}")
    points = []
    for kind, each in seconds.items():
        visual, text = stages.tokens(_conversation(rng, *kind))
        points.append(
            Measured(
                ratio=visual / text,
                visual_tokens=visual,
                text_tokens=text,
                seconds=min(each),
            )
        )
    drivers = _drivers(stages, rng, (kinds[0], kinds[-1]), repeats)
    told("stages left out one by one")
    return Readings(tuple(points), drivers)


def _kinds(stages: Stages, most: int, rng: random.Random) -> list[tuple[int, int]]:
    """Those of SHOWN whose prompts the model can hold."""
    return [kind for kind in SHOWN if sum(stages.tokens(_conversation(rng, *kind))) <= most]


def _drivers(
    stages: Stages,
    rng: random.Random,
    ends: tuple[tuple[int, int], tuple[int, int]],
    repeats: int,
) -> dict[str, float]:
    ways: Mapping[str, Callable[[Conversation], float]] = {
        "whole": stages.whole,
        "reading": stages.without_reading,
        "positions": stages.without_positions,
        "encoder": stages.without_encoder,
        "prefill": stages.without_prefill,
    }
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for name, measured in ways.items():
            for end, kind in enumerate(ends):
                each = measured(_conversation(rng, *kind))
                seconds.setdefault((name, end), []).append(each)
    least = {name: Ends(*(min(seconds[name, end]) for end in (0, 1))) for name in ways}
    found = shares(least["whole"], {name: least[name] for name in ways if name != "whole"})
    # What was encoded is not read anew, and what was prefilled is neither.
    return {
        "reading": found["reading"],
        "positions": found["positions"],
        "encoder": found["encoder"] - found["reading"],
        "prefill": found["prefill"] - found["encoder"],
    }


def _conversation(rng: random.Random, count: int, side: int) -> Conversation:
    return ask(_WORDS, list(_pictures(rng, count, side)))


def _pictures(rng: random.Random, count: int, side: int) -> Iterator[bytes]:
    draw = np.random.default_rng(rng.getrandbits(64))
    for _ in range(count):
        pixels = draw.integers(0, 256, (side, side, 3), dtype=np.uint8)
        data = io.BytesIO()
        Image.fromarray(pixels).save(data, "PNG")
        yield data.getvalue()
