"""What `POST /v1/chat/completions` accepts.

A field is here because it has an effect, or because its neutral value says what happens anyway
(`n: 1`). Any other value of a neutral field, and any field that is not here, is refused by name:
nothing is accepted and ignored. Sizes of pictures and numbers of tokens are judged later.

Tags of unions are written `<tag>`, so that `faults` can leave them out of a field's path.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from chiasm_contract.config import Detail
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

MAX_STOP_SEQUENCES = 4
MAX_LOGPROBS = 20

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
        shown = "not empty" if isinstance(given, dict | list) else repr(given)
        raise PydanticCustomError(
            "unsupported",
            "is {given}, which has no effect here; leave it out{choice}",
            {
                "given": shown if len(shown) <= 80 else shown[:77] + "...",
                "choice": "".join(f" or send {value!r}" for value in self.allowed[1:]),
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

StopSequence = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Stop = Annotated[
    Annotated[StopSequence, Tag("<words>")]
    | Annotated[
        list[StopSequence], Tag("<parts>"), Field(min_length=1, max_length=MAX_STOP_SEQUENCES)
    ],
    Discriminator(
        _tag_of_content,
        custom_error_type="stop",
        custom_error_message="must be a string or a list of strings",
    ),
]
MaxTokens = Annotated[int, Field(ge=1, le=2**31 - 1)]


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
    max_tokens: MaxTokens | None = Field(
        default=None, description="How many tokens the answer may have; absent: what still fits."
    )
    max_completion_tokens: MaxTokens | None = Field(
        default=None, description="The newer name of max_tokens."
    )
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="0 always takes the likeliest token; absent: 1."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Choose among the likeliest tokens whose probabilities add up to this.",
    )
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = Field(
        default=None,
        description="Choose among this many of the likeliest tokens; 0 and -1: no limit. Not "
        "OpenAI's, but many servers have it.",
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(
        default=None, description="The same seed and request give the same answer."
    )
    stop: Stop | None = Field(
        default=None, description="Up to four texts before which the answer ends."
    )
    stream: bool | None = Field(default=None, description="Send the answer as it comes.")
    stream_options: StreamOptions | None = Field(
        default=None, description="With stream: include_usage adds a last event with the usage."
    )
    logprobs: bool | None = Field(
        default=None, description="Report how likely each token of the answer was."
    )
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = Field(
        default=None, description="With logprobs: this many alternatives beside each token."
    )
    user: Annotated[str, StringConstraints(pattern=r"^[ -~]{1,128}$")] | None = Field(
        default=None, description="Written to the access log, where that is on."
    )

    n: Annotated[Any, neutral(1)] = None
    presence_penalty: Annotated[Any, neutral(0)] = None
    frequency_penalty: Annotated[Any, neutral(0)] = None
    repetition_penalty: Annotated[Any, neutral(1)] = None
    min_p: Annotated[Any, neutral(0)] = None
    logit_bias: Annotated[Any, neutral({})] = None
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
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            raise PydanticCustomError(
                "conflict",
                "max_tokens is {old} and max_completion_tokens is {new}; they mean the same, "
                "send one of them",
                {"old": both[0], "new": both[1]},
            )
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError("conflict", "stream_options needs stream: true")
        if self.top_logprobs is not None and not self.logprobs:
            raise PydanticCustomError("conflict", "top_logprobs needs logprobs: true")
        return self
