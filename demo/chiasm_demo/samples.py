"""The ten sample pictures that people meet first, and asking about any picture.

Drawn from a seed range of their own, with fonts and wallpapers that training never used.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from PIL import Image

from chiasm_demo.drawing import draw, load_style
from chiasm_demo.evaluation import Asked, answer
from chiasm_demo.questions import KINDS, Question, ask
from chiasm_demo.scene import SIDES, Scene, Split, sample_scene
from chiasm_demo.shipping import load

NUM_SAMPLES = 10
_MIN_ITEMS = 3


def write(folder: Path) -> None:
    """Write `shelf-01.png` ... and `questions.json`: three questions with answers for each."""
    folder.mkdir(parents=True, exist_ok=True)
    style = load_style(Split.SAMPLES)
    listed = []
    for number, (seed, scene) in enumerate(_interesting_scenes(), start=1):
        name = f"shelf-{number:02d}.png"
        draw(scene, seed, style)[0].save(folder / name)
        rng = random.Random(seed)
        for kind in rng.sample(KINDS, 3):
            question = _one_of(scene, kind, rng)
            listed.append({"picture": name, **vars(question)})
    (folder / "questions.json").write_text(json.dumps(listed, indent=2) + "\n")


def _interesting_scenes() -> list[tuple[int, Scene]]:
    """The first ten scenes of the samples' seeds with at least a few items."""
    found: list[tuple[int, Scene]] = []
    index = 0
    while len(found) < NUM_SAMPLES:
        seed = Split.SAMPLES.seed(index)
        rng = random.Random(seed)
        scene = sample_scene(rng, rng.randint(150, SIDES[-1]), rng.randint(150, SIDES[-1]))
        if len(scene.items()) >= _MIN_ITEMS:
            found.append((seed, scene))
        index += 1
    return found


def _one_of(scene: Scene, kind: str, rng: random.Random) -> Question:
    """A question of that kind, or of another where the scene allows none."""
    while True:
        question = ask(scene, kind, rng, held_out=True)
        if question is not None:
            return question
        kind = rng.choice(KINDS)


def ask_picture(model_folder: Path, picture: Path, question: str) -> str:
    """The shipped model's answer about a picture file."""
    model, processor = load(model_folder)
    image = Image.open(picture).convert("RGB")
    return answer(model, processor, [Asked(image, Question("", question, ""))])[0]
