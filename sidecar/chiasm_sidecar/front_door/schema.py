"""What `POST /v1/chat/completions` accepts.

A field is here because it has an effect, or because its neutral value says what happens anyway
(`store: false`). Any other value of a neutral field, and any field that is not here, is refused by
name: nothing is accepted and ignored. Sizes of pictures and numbers of tokens are judged later.

Tags of unions are written `<tag>`, so that `faults` can leave them out of a field's path.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from chiasm_contract import sampling as limits
from chiasm_contract.config import Detail
from chiasm_contract.messages import PLACES_PER_PRIORITY, Priority
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from chiasm_sidecar.front_door.allowed import in_words

ROLES = ("system", "developer", "user", "assistant")


def _equal(given: object, neutral: object) -> bool:
    """Equality that keeps `true` apart from 1 but takes 0 for 0.0."""
    return given == neutral and isinstance(given, bool) is isinstance(neutral, bool)


class _Neutral:
    """Refuses every value of a field but null and those that mean the default behaviour."""

    def __init__(self, *allowed: object) -> None:
        self.allowed = (None, *allowed)

    def __call__(self, given: object) -> object:
        if any(_equal(given, allowed) for allowed in self.allowed):
            return given
        shown = "not empty" if isinstance(given, dict | list) else json.dumps(given)
        raise PydanticCustomError(
            "unsupported",
            "is {given}, which has no effect here; leave it out{choice}",
            {
                "given": shown if len(shown) <= 80 else shown[:77] + "...",
                "choice": "".join(f" or send {json.dumps(value)}" for value in self.allowed[1:]),
            },
        )


def neutral_values(field: FieldInfo) -> tuple[object, ...] | None:
    """What a neutral field accepts; None for a field with an effect."""
    for rule in field.metadata:
        if isinstance(rule, AfterValidator) and isinstance(rule.func, _Neutral):
            return rule.func.allowed
    return None


def neutral(*allowed: object) -> AfterValidator:
    """The rule of a field whose only accepted values are null and `allowed`."""
    return AfterValidator(_Neutral(*allowed))


Absent = Annotated[Any, neutral()]
AbsentList = Annotated[Any, neutral([])]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class TextPart(_Part):
    """Words."""

    type: Literal["text"]
    text: str


class ImageUrl(_Part):
    """Where a picture is: a data URL with the picture in it; `detail` is how much of it to see."""

    url: str
    detail: Detail = "auto"


class ImagePart(_Part):
    """A picture."""

    type: Literal["image_url"]
    image_url: ImageUrl


class VideoUrl(_Part):
    """Where a video is: a data URL with the video in it."""

    url: str


class VideoPart(_Part):
    """A video; not OpenAI's, but many servers have it."""

    type: Literal["video_url"]
    video_url: VideoUrl


class InputAudio(_Part):
    """A sound itself, in base64; the bytes decide which of the formats it is."""

    data: str
    format: Literal["wav", "flac"]


class AudioPart(_Part):
    """A sound."""

    type: Literal["input_audio"]
    input_audio: InputAudio


MediaPart = ImagePart | VideoPart | AudioPart
_TAGS = {"text": "<text>", "image_url": "<image>", "video_url": "<video>", "input_audio": "<audio>"}


def _tag_of_part(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return _TAGS.get(kind) if isinstance(kind, str) else None


UserPart = Annotated[
    Annotated[TextPart, Tag("<text>")]
    | Annotated[ImagePart, Tag("<image>")]
    | Annotated[VideoPart, Tag("<video>")]
    | Annotated[AudioPart, Tag("<audio>")],
    Discriminator(
        _tag_of_part,
        custom_error_type="content_part",
        custom_error_message=f"must be an object whose type is one of {', '.join(_TAGS)}",
    ),
]


def _tag_of_content(value: Any) -> str | None:
    if isinstance(value, str):
        return "<words>"
    return "<parts>" if isinstance(value, list) else None


_CONTENT = Discriminator(
    _tag_of_content,
    custom_error_type="content",
    custom_error_message="must be a string or a list of content parts",
)
TextContent = Annotated[
    Annotated[str, Tag("<words>")] | Annotated[list[TextPart], Tag("<parts>"), Field(min_length=1)],
    _CONTENT,
]
UserContent = Annotated[
    Annotated[str, Tag("<words>")] | Annotated[list[UserPart], Tag("<parts>"), Field(min_length=1)],
    _CONTENT,
]


class InstructionMessage(_Part):
    """What the application asks of the model; the newer name `developer` means the same."""

    role: Literal["system", "developer"]
    content: TextContent
    name: Absent = None


class UserMessage(_Part):
    """A turn of the person, the only one that may bring pictures, videos and sounds."""

    role: Literal["user"]
    content: UserContent
    name: Absent = None


class AssistantMessage(_Part):
    """An earlier answer; the empty fields of our own answers may come back with it."""

    role: Literal["assistant"]
    content: TextContent
    name: Absent = None
    refusal: Absent = None
    audio: Absent = None
    function_call: Absent = None
    tool_calls: AbsentList = None
    annotations: AbsentList = None


def _tag_of_message(value: Any) -> str | None:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    if not isinstance(role, str) or role not in ROLES:
        return None
    return "<instruction>" if role in {"system", "developer"} else f"<{role}>"


Message = Annotated[
    Annotated[InstructionMessage, Tag("<instruction>")]
    | Annotated[UserMessage, Tag("<user>")]
    | Annotated[AssistantMessage, Tag("<assistant>")],
    Discriminator(
        _tag_of_message,
        custom_error_type="role",
        custom_error_message="must be an object whose role is one of " + ", ".join(ROLES),
    ),
]

Stop = Annotated[
    Annotated[limits.StopString, Tag("<words>")]
    | Annotated[
        list[limits.StopString],
        Tag("<parts>"),
        Field(min_length=1, max_length=limits.MAX_STOP_STRINGS),
    ],
    Discriminator(
        _tag_of_content,
        custom_error_type="stop",
        custom_error_message="must be a string or a list of strings",
    ),
]
# JSON's keys are strings.
BiasedToken = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,8})$")]


class StreamOptions(_Part):
    """Only with `stream: true`."""

    include_usage: bool = False
    include_obfuscation: Annotated[Any, neutral(False)] = None


class ChatRequest(BaseModel):
    """The body of one chat request."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    model: str = Field(description="The served model's name, as /v1/models lists it.")
    messages: Annotated[list[Message], Field(min_length=1)] = Field(
        description="The conversation: system or developer, user and assistant turns. Pictures "
        "(image_url), videos (video_url) and sounds (input_audio) are parts of user turns, as data "
        "URLs or base64."
    )
    max_tokens: limits.MaxTokens | None = Field(
        default=None, description="How many tokens the answer may have; absent: what still fits."
    )
    max_completion_tokens: limits.MaxTokens | None = Field(
        default=None, description="The newer name of max_tokens."
    )
    temperature: limits.Temperature | None = Field(
        default=None, description="0 always takes the likeliest token; absent: 1."
    )
    top_p: limits.TopP | None = Field(
        default=None,
        description="Choose among the likeliest tokens whose probabilities add up to this.",
    )
    top_k: Annotated[int, Field(ge=-1, le=limits.MAX_TOKENS)] | None = Field(
        default=None,
        description="Choose among this many of the likeliest tokens; 0 and -1: no limit.",
    )
    min_p: limits.MinP | None = Field(
        default=None,
        description="Choose among the tokens at least this share as likely as the likeliest.",
    )
    presence_penalty: limits.Penalty | None = Field(
        default=None, description="Taken from the logit of every token that the answer holds."
    )
    frequency_penalty: limits.Penalty | None = Field(
        default=None,
        description="Taken from a token's logit for each time that the answer holds it.",
    )
    repetition_penalty: limits.RepetitionPenalty | None = Field(
        default=None,
        description="Divides the positive and multiplies the negative logits of tokens that "
        "prompt or answer hold; 1: no effect.",
    )
    logit_bias: (
        Annotated[dict[BiasedToken, limits.Bias], Field(max_length=limits.MAX_BIASED_TOKENS)] | None
    ) = Field(
        default=None,
        description="Token id -> what is added to its logit, -100 to 100.",
        json_schema_extra=in_words(
            f"an object of up to {limits.MAX_BIASED_TOKENS} token ids, each with a number from "
            f"{-limits.MAX_BIAS:g} to {limits.MAX_BIAS:g}"
        ),
    )
    n: limits.NumChoices | None = Field(
        default=None,
        description="How many answers to the one prompt, which is computed once; absent: 1.",
    )
    seed: limits.Seed | None = Field(
        default=None, description="The same seed and request give the same answers."
    )
    stop: Stop | None = Field(
        default=None,
        description="Up to four texts before which the answer ends.",
        json_schema_extra=in_words(
            f"a string of 1 to {limits.MAX_STOP_STRING_CHARS} characters, or a list of 1 to "
            f"{limits.MAX_STOP_STRINGS} of them"
        ),
    )
    stop_token_ids: (
        Annotated[list[limits.TokenId], Field(max_length=limits.MAX_STOP_TOKENS)] | None
    ) = Field(
        default=None,
        description="Tokens before which the answer ends.",
        json_schema_extra=in_words(f"a list of up to {limits.MAX_STOP_TOKENS} token ids"),
    )
    include_stop_str_in_output: bool | None = Field(
        default=None, description="Keep in the answer what ended it by stop or stop_token_ids."
    )
    min_tokens: limits.MinTokens | None = Field(
        default=None,
        description="Before this many tokens nothing but max_tokens ends the answer.",
    )
    ignore_eos: bool | None = Field(
        default=None, description="Go on behind the model's own end token."
    )
    priority: Priority | None = Field(
        default=None,
        description="Lower is served earlier: as if the request had arrived "
        f"{PLACES_PER_PRIORITY} places sooner or later in the queue for each step; absent: 0. Not "
        "OpenAI's; vLLM's name and sense.",
    )
    stream: bool | None = Field(default=None, description="Send the answer as it comes.")
    stream_options: StreamOptions | None = Field(
        default=None, description="With stream: include_usage adds a last event with the usage."
    )
    logprobs: bool | None = Field(
        default=None, description="Report how likely each token of the answer was."
    )
    top_logprobs: limits.NumLogprobs | None = Field(
        default=None, description="With logprobs: this many alternatives beside each token."
    )
    user: Annotated[str, StringConstraints(pattern=r"^[ -~]{1,128}$")] | None = Field(
        default=None,
        description="Written to the access log, where that is on.",
        json_schema_extra=in_words("1 to 128 printable ASCII characters"),
    )

    response_format: Annotated[Any, neutral({"type": "text"})] = None
    tools: AbsentList = None
    tool_choice: Annotated[Any, neutral("none", "auto")] = None
    parallel_tool_calls: Annotated[Any, neutral(True)] = None
    modalities: Annotated[Any, neutral(["text"])] = None
    store: Annotated[Any, neutral(False)] = None
    metadata: Annotated[Any, neutral({})] = None
    service_tier: Annotated[Any, neutral("auto", "default")] = None

    @model_validator(mode="after")
    def _fields_agree(self) -> ChatRequest:
        old, new = self.max_tokens, self.max_completion_tokens
        if None not in (old, new) and old != new:
            raise _conflict(
                "max_completion_tokens",
                f"max_tokens is {old} and max_completion_tokens is {new}; they mean the same, "
                "send one of them",
            )
        if self.stream_options is not None and not self.stream:
            raise _conflict("stream_options", "stream_options needs stream: true")
        if self.top_logprobs is not None and not self.logprobs:
            raise _conflict("top_logprobs", "top_logprobs needs logprobs: true")
        most, least = new or old, self.min_tokens
        if most is not None and least is not None and least > most:
            raise _conflict(
                "min_tokens", f"min_tokens is {least}, but max_tokens is {most}; send at most that"
            )
        return self


def _conflict(param: str, words: str) -> PydanticCustomError:
    """Two fields that do not go together; `param` is the one to change."""
    return PydanticCustomError("conflict", "{words}", {"param": param, "words": words})
