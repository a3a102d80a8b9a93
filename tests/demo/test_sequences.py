"""Packed training sequences are exactly the prompts that the shipped processor makes."""

import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from chiasm_demo.language import TRAINED_KINDS
from chiasm_demo.model_config import build_config, build_processor
from chiasm_demo.questions import Question
from chiasm_demo.sequences import Packed, Packer
from chiasm_demo.tokenizer import build_tokenizer
from PIL import Image
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

GRID = (4, 6)  # tokens of a picture of 112 x 168 pixels
ASKED = [
    Question("where", "Where is the red circle?", "top left"),
    Question("number", "How much is the star?", "14.99"),
]
MODEL = Path(__file__).parents[2] / "demo" / "model"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture(scope="module")
def packed(tokenizer: PreTrainedTokenizerFast) -> Packed:
    never_two_turns = random.Random(1)
    never_two_turns.random = lambda: 0.99  # type: ignore[method-assign]
    return Packer(tokenizer, TRAINED_KINDS).pack([ASKED], GRID, never_two_turns)


def prompt(tokenizer: PreTrainedTokenizerFast, question: Question) -> dict[str, torch.Tensor]:
    content = [{"type": "text", "text": question.text}, {"type": "image"}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    picture = Image.new("RGB", (168, 112))
    return dict(build_processor(tokenizer)(images=[picture], text=[text], return_tensors="pt"))


def visible(packed: Packed, session: int) -> torch.Tensor:
    """Indices that the last token of the session's answer may attend to."""
    last = (packed.targets[0] >= 0).nonzero().flatten()
    ends = [int(i) for i, n in pairwise(last) if n != i + 1] + [int(last[-1])]
    return packed.mask[0, 0, ends[session]].nonzero().flatten()


def test_each_session_is_the_processors_prompt(
    tokenizer: PreTrainedTokenizerFast, packed: Packed
) -> None:
    model = Qwen3VLForConditionalGeneration(build_config(tokenizer))
    for session, question in enumerate(ASKED):
        inputs = prompt(tokenizer, question)
        length = inputs["input_ids"].shape[1]
        seen = visible(packed, session)
        assert packed.input_ids[0, seen[:length]].tolist() == inputs["input_ids"][0].tolist()
        answer = tokenizer.decode(packed.input_ids[0, seen[length:]])
        assert answer == question.answer
        positions, _ = model.model.get_rope_index(
            inputs["input_ids"],
            mm_token_type_ids=inputs["mm_token_type_ids"],
            image_grid_thw=inputs["image_grid_thw"],
        )
        assert torch.equal(packed.position_ids[:, 0, seen[:length]], positions[:, 0])


def test_targets_are_the_answers_and_the_end_of_the_turn(
    tokenizer: PreTrainedTokenizerFast, packed: Packed
) -> None:
    chosen = packed.targets[0] >= 0
    spoken = tokenizer.decode(packed.targets[0][chosen])
    assert spoken == "top left<|im_end|>14.99<|im_end|>"
    kinds = packed.kinds[0][chosen].tolist()
    assert kinds[0] == TRAINED_KINDS.index("where")
    assert kinds[-1] == TRAINED_KINDS.index("number")


def test_the_tokenizer_keeps_words_whole_digits_single_and_any_text_intact(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    assert len(tokenizer.tokenize("What is left of the red circle?")) == 8
    assert tokenizer.tokenize("14.99") == ["1", "4", ".", "9", "9"]
    for text in ("I don't know", "Größe, 价格, 5 €", "  two  spaces\n"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_shipped_tokenizer_is_the_one_the_code_builds(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    shipped = PreTrainedTokenizerFast.from_pretrained(MODEL, local_files_only=True)
    assert shipped.get_vocab() == tokenizer.get_vocab()
    assert shipped.chat_template == tokenizer.chat_template
