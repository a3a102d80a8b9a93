"""Asks the finished model about held-out pictures, the way any user of transformers would.

Pictures come from seeds, fonts and wallpapers that training never used; their sides are anything
from 112 to 224 pixels. An answer is right if it is the expected text, letter by letter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

from chiasm_demo.drawing import Style, draw
from chiasm_demo.questions import KINDS, Question, ask
from chiasm_demo.scene import SIDES, Split, sample_scene

_BATCH = 48
_SEEDS_PER_KIND = 10_000_000


@dataclass(frozen=True)
class Asked:
    """A picture, a question about it, and what the model said."""

    picture: Image.Image
    question: Question


def held_out(kind: str, num: int, style: Style) -> list[Asked]:
    """`num` held-out pictures with one question of `kind` each."""
    asked: list[Asked] = []
    index = KINDS.index(kind) * _SEEDS_PER_KIND
    while len(asked) < num:
        seed = Split.HELD_OUT.seed(index)
        index += 1
        rng = random.Random(seed)
        scene = sample_scene(
            rng, rng.randint(SIDES[0], SIDES[-1]), rng.randint(SIDES[0], SIDES[-1])
        )
        question = ask(scene, kind, rng, held_out=True)
        if question is not None:
            asked.append(Asked(draw(scene, seed, style)[0], question))
    return asked


def answer_all(
    model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor, asked: list[Asked]
) -> Iterator[tuple[Asked, str]]:
    """Every question with the model's answer; pictures of like size share a batch."""
    ordered = sorted(asked, key=lambda one: (one.picture.size, len(one.question.text)))
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        yield from zip(batch, answer(model, processor, batch), strict=True)


@torch.inference_mode()
def answer(
    model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor, batch: list[Asked]
) -> list[str]:
    """The model's greedy answers to one batch."""
    conversations = [
        [
            {
                "role": "user",
                "content": [
                    {"type": "image", "image": one.picture},
                    {"type": "text", "text": one.question.text},
                ],
            }
        ]
        for one in batch
    ]
    inputs = processor.apply_chat_template(
        conversations,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "left"},
    )
    output = model.generate(**inputs, max_new_tokens=12)
    spoken = output[:, inputs["input_ids"].shape[1] :]
    return list(processor.batch_decode(spoken, skip_special_tokens=True))


def measure(
    model: Qwen3VLForConditionalGeneration,
    processor: Qwen3VLProcessor,
    style: Style,
    num_per_kind: int,
    kinds: tuple[str, ...] = KINDS,
) -> dict[str, float]:
    """Share of right answers per kind."""
    shares = {}
    for kind in kinds:
        asked = held_out(kind, num_per_kind, style)
        right = sum(
            said == one.question.answer for one, said in answer_all(model, processor, asked)
        )
        shares[kind] = right / len(asked)
    return shares
