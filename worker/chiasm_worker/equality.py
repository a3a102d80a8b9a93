"""The same conversations to our engine and to transformers' own `generate`, token for token.

Greedy, in the model's dtype (fp32 for equality). Used by tests and benchmarks; a model folder of
a user's can be held to the same standard.

Must not know: HTTP, which models there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from chiasm_contract.config import EngineLimits, ImageLimits
from chiasm_contract.messages import ChatMessage, ImagePart, TextPart
from transformers import AutoModelForImageTextToText, AutoProcessor

from chiasm_worker.engine.encoding import EncoderInputs
from chiasm_worker.engine.engine import Engine
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import ImagePreparer
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.prompt import PromptBuilder
from chiasm_worker.request import Prompt, Request, SamplingParams

ROOT = b"equality".ljust(32, b".")


@dataclass(frozen=True)
class Conversation:
    """A conversation with its pictures as files; image parts index into them."""

    messages: tuple[ChatMessage, ...]
    pictures: tuple[bytes, ...] = ()


def ask(text: str, pictures: Sequence[bytes] = ()) -> Conversation:
    """One user turn: all pictures, then a question."""
    parts: list[ImagePart | TextPart] = [ImagePart(index=i) for i in range(len(pictures))]
    content = (*parts, TextPart(text=text))
    return Conversation((ChatMessage(role="user", content=content),), tuple(pictures))


class Reference:
    """transformers' model and processor, as they are."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self._model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype).eval()
        self._processor: Any = AutoProcessor.from_pretrained(folder)

    @torch.inference_mode()
    def generate(self, conversation: Conversation, max_tokens: int) -> list[int]:
        """The tokens that transformers generates."""
        inputs = self.inputs(conversation)
        output = self._model.generate(
            **inputs, max_new_tokens=max_tokens, do_sample=False, use_cache=True
        )
        tokens: list[int] = output[0, inputs["input_ids"].shape[1] :].tolist()
        return tokens

    def inputs(self, conversation: Conversation) -> Any:
        """What transformers' processor makes of a conversation."""
        images = [decode_image(p, ImageLimits()).pixels for p in conversation.pictures]
        chat = [
            {
                "role": message.role,
                "content": [
                    {"type": "image", "image": images[part.index]}
                    if isinstance(part, ImagePart)
                    else {"type": "text", "text": part.text}
                    for part in message.content
                ],
            }
            for message in conversation.messages
        ]
        return self._processor.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )


class Prepared:
    """One loaded model with the way from conversations to requests; engines are made from it."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self._images = ImagePreparer(model)
        self._prompts = PromptBuilder(model)

    def engine(self, **limits: Any) -> Engine:
        """A cold engine."""
        given = {"kv_cache_bytes": 2**24, "max_model_len": 1024, **limits}
        return Engine(self.model, EngineLimits(**given), ROOT)

    def prompt(self, conversation: Conversation) -> tuple[Prompt, list[EncoderInputs]]:
        """A conversation's prompt and the encoder inputs of its spans."""
        items = [
            self._images.prepare(decode_image(picture, ImageLimits(), index))
            for index, picture in enumerate(conversation.pictures)
        ]
        prompt = self._prompts.build(conversation.messages, items)
        inputs = {item.identity.digest: item.inputs for item in items}
        return prompt, [inputs[span.item.digest] for span in prompt.spans]

    def add(
        self, engine: Engine, request_id: str, conversation: Conversation, params: SamplingParams
    ) -> Request:
        """Queue a conversation in an engine."""
        prompt, inputs = self.prompt(conversation)
        request = engine.make_request(request_id, prompt, params)
        engine.add(request, inputs)
        return request

    def generate(
        self,
        engine: Engine,
        conversations: Sequence[Conversation],
        max_tokens: int,
        steps_between: int = 0,
    ) -> list[list[int]]:
        """The tokens that an engine generates for conversations that share its batches.

        Args:
            steps_between: steps computed between two arrivals; 0 means all arrive at once.
        """
        params = SamplingParams(max_tokens=max_tokens)
        requests = []
        for index, conversation in enumerate(conversations):
            requests.append(self.add(engine, f"c{index}", conversation, params))
            for _ in range(steps_between):
                if engine.has_requests:
                    engine.step()
        while engine.has_requests:
            engine.step()
        engine.pool.check()
        return [list(request.output_token_ids) for request in requests]


def num_mismatches(expected: Sequence[Sequence[int]], seen: Sequence[Sequence[int]]) -> int:
    """Tokens that differ, missing and surplus ones included."""
    count = 0
    for want, got in zip(expected, seen, strict=True):
        count += sum(a != b for a, b in zip(want, got, strict=False)) + abs(len(want) - len(got))
    return count
