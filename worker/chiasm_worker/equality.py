"""The same conversations to our engine and to transformers' own `generate`, token for token.

Greedy, in the model's dtype (fp32 for equality). Used by tests and benchmarks; a model folder of
a user's can be held to the same standard.

Must not know: HTTP, which models there are.
"""

from __future__ import annotations

import inspect
import io
import tempfile
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from chiasm_contract.config import (
    AudioLimits,
    Detail,
    EngineLimits,
    ImageLimits,
    MediaLimits,
    VideoLimits,
    VisionConfig,
)
from chiasm_contract.messages import (
    AudioPart,
    ChatMessage,
    ContentPart,
    ImagePart,
    MediaFiles,
    MediaPart,
    TextPart,
    VideoPart,
)
from transformers import AutoModelForMultimodalLM, AutoProcessor
from transformers.video_utils import load_video

from chiasm_worker.engine.engine import Engine
from chiasm_worker.modality.frames import DEFAULT_FRAMES_PER_SECOND
from chiasm_worker.modality.image import decode_image
from chiasm_worker.modality.media import MediaInputs
from chiasm_worker.modality.request_media import MediaReader
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.prompt import PromptBuilder
from chiasm_worker.request import Prompt, Request, SamplingParams

ROOT = b"equality".ljust(32, b".")


@dataclass(frozen=True)
class Conversation:
    """A conversation with its pictures and videos as files; parts index into them."""

    messages: tuple[ChatMessage, ...]
    pictures: tuple[bytes, ...] = ()
    videos: tuple[bytes, ...] = ()
    sounds: tuple[bytes, ...] = ()

    @property
    def media_parts(self) -> list[MediaPart]:
        """The media in the order in which they are shown."""
        return [p for m in self.messages for p in m.content if not isinstance(p, TextPart)]


def ask(
    text: str,
    pictures: Sequence[bytes] = (),
    videos: Sequence[bytes] = (),
    sounds: Sequence[bytes] = (),
    detail: Detail = "auto",
) -> Conversation:
    """One user turn: all pictures, all videos, all sounds, then a question."""
    content: tuple[ContentPart, ...] = (
        *(ImagePart(index=i, detail=detail) for i in range(len(pictures))),
        *(VideoPart(index=i) for i in range(len(videos))),
        *(AudioPart(index=i) for i in range(len(sounds))),
        TextPart(text=text),
    )
    message = ChatMessage(role="user", content=content)
    return Conversation((message,), tuple(pictures), tuple(videos), tuple(sounds))


class Reference:
    """transformers' model and processor, as they are."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self._model: Any = AutoModelForMultimodalLM.from_pretrained(folder, dtype=dtype).eval()
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

    @torch.inference_mode()
    def positions(self, conversation: Conversation) -> tuple[npt.NDArray[np.int64], int]:
        """For models with several axes: [num_axes, num_tokens] of a prompt, and the distance of
        every later position from its place."""
        given = self.inputs(conversation)
        names = inspect.signature(self._model.model.get_rope_index).parameters
        ids, delta = self._model.model.get_rope_index(**{n: given[n] for n in names if n in given})
        return ids[:, 0].numpy(), int(delta)

    def inputs(self, conversation: Conversation) -> Any:
        """What transformers' processor makes of a conversation."""
        images = [decode_image(p, ImageLimits()).pixels for p in conversation.pictures]
        videos = [_all_frames(data) for data in conversation.videos]
        sounds = [_all_samples(data) for data in conversation.sounds]

        def block(part: MediaPart | TextPart) -> dict[str, Any]:
            if isinstance(part, TextPart):
                return {"type": "text", "text": part.text}
            if isinstance(part, ImagePart):
                return {"type": "image", "image": images[part.index]}
            if isinstance(part, VideoPart):
                return {"type": "video", "video": videos[part.index][0]}
            return {"type": "audio", "audio": sounds[part.index]}

        chat = [
            {"role": message.role, "content": [block(part) for part in message.content]}
            for message in conversation.messages
        ]
        shown = [videos[p.index][1] for p in conversation.media_parts if isinstance(p, VideoPart)]
        rate = {"video_metadata": shown, "do_sample_frames": True} if shown else {}
        if shown and getattr(self._processor.video_processor, "fps", None) is None:
            rate["fps"] = DEFAULT_FRAMES_PER_SECOND
        return self._processor.apply_chat_template(
            chat,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs=rate,
        )


def _all_frames(data: bytes) -> Any:
    """All frames of a video and its metadata, read by transformers itself."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return load_video(file.name, backend="pyav")


def _all_samples(data: bytes) -> npt.NDArray[np.float32]:
    """The samples of a WAV file of 16-bit numbers at the model's rate, read by Python itself."""
    with wave.open(io.BytesIO(data)) as file:
        numbers = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (numbers / 2**15).astype(np.float32)


class Prepared:
    """One loaded model with the way from conversations to requests; engines are made from it."""

    def __init__(self, model: LoadedModel, vision: VisionConfig | None = None) -> None:
        self.model = model
        several = MediaLimits(
            videos=VideoLimits(max_per_prompt=4), audios=AudioLimits(max_per_prompt=4)
        )
        self._media = MediaReader(model, several, vision or VisionConfig())
        self._prompts = PromptBuilder(model)

    def engine(self, **limits: Any) -> Engine:
        """A cold engine."""
        given = {"kv_cache_bytes": 2**24, "max_model_len": 1024, **limits}
        return Engine(self.model, EngineLimits(**given), ROOT)

    def prompt(self, conversation: Conversation) -> tuple[Prompt, list[MediaInputs]]:
        """A conversation's prompt and the encoder inputs of its spans."""
        files = MediaFiles(conversation.pictures, conversation.videos, conversation.sounds)
        items, inputs = self._media.read(conversation.media_parts, files)
        return self._prompts.build(conversation.messages, items), inputs

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
