"""From the bytes of a chat request to what the worker needs, or to the client's fault.

A pure function of body and limits, so that it may run in a thread when a body is large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import RequestTooLarge, UnknownModel
from chiasm_contract.messages import ChatMessage, ImagePart, TextPart
from chiasm_contract.sampling import Sampling
from pydantic import ValidationError

from chiasm_sidecar.front_door import schema
from chiasm_sidecar.front_door.faults import from_validation
from chiasm_sidecar.front_door.media import Picture, picture_from_url

# Fields that mean the same on both sides.
_PASSED_ON = Sampling.model_fields.keys() & schema.ChatRequest.model_fields.keys()


@dataclass
class Prepared:
    """One admitted request. `pictures` is emptied once the worker has them: they are large."""

    messages: tuple[ChatMessage, ...]
    pictures: list[Picture]
    modality: Literal["text", "image"]
    sampling: Sampling
    priority: int
    stream: bool
    include_usage: bool
    user: str | None


def prepare(body: bytes, model_id: str, limits: ImageLimits) -> Prepared:
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
    messages, pictures = _conversation(request.messages, limits)
    options = request.stream_options
    return Prepared(
        messages=messages,
        pictures=pictures,
        modality="image" if pictures else "text",
        sampling=_sampling(request),
        priority=request.priority or 0,
        stream=bool(request.stream),
        include_usage=options is not None and options.include_usage,
        user=request.user,
    )


def _conversation(
    messages: list[schema.Message], limits: ImageLimits
) -> tuple[tuple[ChatMessage, ...], list[Picture]]:
    """Turns with pictures replaced by their index; every picture's header checked."""
    urls = [
        (part.image_url.url, f"messages[{turn}].content[{place}].image_url.url")
        for turn, message in enumerate(messages)
        if not isinstance(message.content, str)
        for place, part in enumerate(message.content)
        if isinstance(part, schema.ImagePart)
    ]
    if len(urls) > limits.max_per_prompt:
        raise RequestTooLarge(
            f"The request brings {len(urls)} pictures; at most {limits.max_per_prompt} are "
            "allowed.",
            param=urls[limits.max_per_prompt][1].removesuffix(".image_url.url"),
        )
    pictures = [picture_from_url(url, limits, param) for url, param in urls]
    index = 0
    turns = []
    for message in messages:
        parts: list[TextPart | ImagePart] = []
        content = message.content
        for part in [content] if isinstance(content, str) else content:
            if isinstance(part, schema.ImagePart):
                parts.append(ImagePart(index=index))
                index += 1
            else:
                parts.append(TextPart(text=part if isinstance(part, str) else part.text))
        role = "system" if message.role == "developer" else message.role
        turns.append(ChatMessage(role=role, content=tuple(parts)))
    return tuple(turns), pictures


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
