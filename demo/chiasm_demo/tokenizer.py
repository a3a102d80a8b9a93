"""The demo model's tokenizer: byte-level BPE, as Qwen's, but with a few hundred tokens.

Learned from generated questions, so that every word of the model's world is one token, while any
other text still has a spelling (bytes) and therefore a chance to be recognised as foreign. Digits
are single tokens: a price is read digit by digit.

The chat template puts a message's pictures before its text, whatever their order in the request:
the model was trained that way round.
"""

from __future__ import annotations

import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from chiasm_demo.outside import ANSWER as UNKNOWN_ANSWER
from chiasm_demo.outside import ask_outside
from chiasm_demo.questions import ABSENT, KINDS, NO_PRICE, NOTHING, ask, describe
from chiasm_demo.scene import Split, sample_scene

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
VISION_START = "<|vision_start|>"
VISION_END = "<|vision_end|>"
IMAGE_PAD = "<|image_pad|>"
VIDEO_PAD = "<|video_pad|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)

VOCAB_SIZE = 768
_NUM_CORPUS_SCENES = 4000

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen's own pre-tokenizer pattern: words with their leading space, digits one by one."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type in ('image', 'image_url') -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part.type == 'video' -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Learn the tokenizer from generated text; the same code always gives the same tokens."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        extra_special_tokens={
            "image_token": IMAGE_PAD,
            "video_token": VIDEO_PAD,
            "vision_start_token": VISION_START,
            "vision_end_token": VISION_END,
        },
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def _corpus() -> list[str]:
    """Questions and answers of every kind; foreign ones are rare, so that they stay split."""
    lines = []
    for index in range(_NUM_CORPUS_SCENES):
        rng = random.Random(Split.TRAIN.seed(index))
        scene = sample_scene(rng)
        for kind in (*KINDS[:-1], "describe"):
            question = ask(scene, kind, rng)
            if question is not None:
                lines += [question.text, question.answer]
        lines += [describe(scene), NOTHING, NO_PRICE, ABSENT, UNKNOWN_ANSWER, "user\nassistant\n"]
        if index % 4 == 0:
            lines.append(ask_outside(rng, held_out=False))
    return lines
