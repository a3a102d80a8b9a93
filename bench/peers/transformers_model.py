"""Contestant: transformers' own `generate`, several questions as one padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from PIL import Image
from protocol import Answer, Question, serve


def contestant(folder: str, num_threads: int) -> Answer:
    """The model in `folder`, in bfloat16."""
    torch.set_num_threads(num_threads)
    processor: Any = transformers.AutoProcessor.from_pretrained(folder)
    processor.tokenizer.padding_side = "left"
    model: Any = transformers.AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.bfloat16
    ).eval()

    @torch.inference_mode()
    def answer(questions: Sequence[Question], max_tokens: int) -> int:
        chats = [
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "image": Image.open(question.picture).convert("RGB")},
                        {"type": "text", "text": question.words},
                    ],
                }
            ]
            for question in questions
        ]
        inputs = processor.apply_chat_template(
            chats, add_generation_prompt=True, tokenize=True, return_dict=True,
            return_tensors="pt", processor_kwargs={"padding": True},
        )  # fmt: skip
        output = model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
        new = output[:, inputs["input_ids"].shape[1] :]
        return int(new.numel())

    return answer


if __name__ == "__main__":
    serve(contestant)
