"""From the bytes of a chat request to what the worker needs, or to the client's fault.

A pure function of body and limits, so that it may run in a thread when a body is large.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from chiasm_contract.config import MediaKind, MediaLimits
from chiasm_contract.errors import UnknownModel
from chiasm_contract.messages import (
    MEDIA_NAMES,
    AudioPart,
    ChatMessage,
    ContentPart,
    ImagePart,
    TextPart,
    VideoPart,
    too_many_media,
)
from chiasm_contract.sampling import Sampling
from pydantic import ValidationError

from chiasm_sidecar.front_door import schema
from chiasm_sidecar.front_door.faults import from_validation
from chiasm_sidecar.front_door.media import (
    MediaFile,
    picture_from_url,
    sound_from_base64,
    video_from_url,
)

Modality = Literal["text", "image", "video", "audio", "mixed"]
_KINDS: dict[str, MediaKind] = {"image_url": "image", "video_url": "video", "input_audio": "audio"}
_PARTS = {"image": ImagePart, "video": VideoPart, "audio": AudioPart}

# Fields that mean the same on both sides.
_PASSED_ON = Sampling.model_fields.keys() & schema.ChatRequest.model_fields.keys()


@dataclass
class Prepared:
    """One admitted request. `media` is emptied once somebody answers: they are large."""

    messages: tuple[ChatMessage, ...]
    # In the order in which the conversation shows them.
    media: list[MediaFile]
    modality: Modality
    sampling: Sampling
    priority: int
    stream: bool
    include_usage: bool
    user: str | None
    # As it came, for whom it may be handed over to; emptied like `media`.
    body: bytes = field(repr=False, compare=False)

    def let_go(self) -> None:
        """Somebody answers: what is large is needed no more."""
        self.media.clear()
        self.body = b""


def prepare(body: bytes, model_id: str, limits: MediaLimits) -> Prepared:
    """Parse and check one request.

    Raises: ClientFault with the field's path.
    """
    try:
        request = schema.ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error, schema.ChatRequest) from None
    if request.model != model_id:
        raise UnknownModel(
            f"Model {request.model[:200]!r} is not served here; use {model_id!r}.", param="model"
        )
    media = _media(request.messages, limits)
    options = request.stream_options
    return Prepared(
        messages=_turns(request.messages),
        media=media,
        modality=_modality(media),
        sampling=_sampling(request),
        priority=request.priority or 0,
        stream=bool(request.stream),
        include_usage=options is not None and options.include_usage,
        user=request.user,
        body=body,
    )


def _media(messages: list[schema.Message], limits: MediaLimits) -> list[MediaFile]:
    """Every file of a conversation, its first bytes checked."""
    shown = [
        (part, f"messages[{turn}].content[{place}]")
        for turn, message in enumerate(messages)
        if not isinstance(message.content, str)
        for place, part in enumerate(message.content)
        if not isinstance(part, schema.TextPart)
    ]
    for kind in MEDIA_NAMES:
        params = [param for part, param in shown if _KINDS[part.type] == kind]
        limit = limits.max_per_prompt(kind)
        if len(params) > limit:
            raise too_many_media(kind, len(params), limit, params[limit])
    return [_file(part, param, limits) for part, param in shown]


def _file(part: schema.MediaPart, param: str, limits: MediaLimits) -> MediaFile:
    match part:
        case schema.ImagePart():
            url = part.image_url.url
            return picture_from_url(url, limits.images, f"{param}.image_url.url")
        case schema.VideoPart():
            return video_from_url(part.video_url.url, limits.videos, f"{param}.video_url.url")
        case schema.AudioPart():
            return sound_from_base64(
                part.input_audio.data, limits.audios, f"{param}.input_audio.data"
            )


def _turns(messages: list[schema.Message]) -> tuple[ChatMessage, ...]:
    """Turns with each file replaced by its number among those of its kind."""
    numbers: Counter[str] = Counter()
    turns = []
    for message in messages:
        parts: list[ContentPart] = []
        content = message.content
        for part in [content] if isinstance(content, str) else content:
            if isinstance(part, str | schema.TextPart):
                parts.append(TextPart(text=part if isinstance(part, str) else part.text))
                continue
            kind = _KINDS[part.type]
            made = _PARTS[kind](index=numbers[kind])
            if isinstance(part, schema.ImagePart):
                made = made.model_copy(update={"detail": part.image_url.detail})
            parts.append(made)
            numbers[kind] += 1
        role = "system" if message.role == "developer" else message.role
        turns.append(ChatMessage(role=role, content=tuple(parts)))
    return tuple(turns)


def _modality(media: list[MediaFile]) -> Modality:
    kinds = {file.kind for file in media}
    if len(kinds) > 1:
        return "mixed"
    return kinds.pop() if kinds else "text"


def _sampling(request: schema.ChatRequest) -> Sampling:
    """What the worker is told; a field that is absent keeps the contract's default."""
    given = {name: getattr(request, name) for name in _PASSED_ON}
    stop = request.stop
    given |= {
        "top_k": max(request.top_k or 0, 0),
        "max_tokens": request.max_completion_tokens or request.max_tokens,
        "stop": (stop,) if isinstance(stop, str) else stop,
        "logprobs": (request.top_logprobs or 0) if request.logprobs else None,
    }
    return Sampling(**{name: value for name, value in given.items() if value is not None})
