"""What travels between sidecar and worker, and from a pod to the operator.

A request is one body: `length of head, 4 bytes big-endian | head, JSON | media, back to back`:
pictures, then videos, then sounds. Files stay raw bytes (base64 would cost a third more and a
copy). The answer is NDJSON, one event a line: any number of `token` and, for each choice, one
`finish` behind its tokens; or, wherever something fails, one `error`, behind which nothing comes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from chiasm_contract.config import Detail, MediaKind
from chiasm_contract.configuration import ConfigReport
from chiasm_contract.errors import ClientFault, ErrorBody, InvalidRequest, RequestTooLarge
from chiasm_contract.fingerprint import SHARED_SCOPE_FP, Digest, Value
from chiasm_contract.sampling import Sampling
from chiasm_contract.traffic import TrafficReport

REQUEST_MEDIA_TYPE = "application/x-chiasm-request"
EVENT_MEDIA_TYPE = "application/x-ndjson"
INCARNATION_HEADER = "x-chiasm-incarnation"
"""On the worker's answers to /generate: IdentityReport.incarnation of the process that answers."""
COMPUTE_FP_HEADER = "x-chiasm-compute-fp"
"""Beside it: IdentityReport.compute_fp of the model that answers; a reload may swap it."""

# One step of priority passes the whole of a queue of the default length.
PLACES_PER_PRIORITY = 64
Priority = Annotated[int, Field(ge=-100, le=100)]

# What sentences call one of a kind.
MEDIA_NAMES: Mapping[MediaKind, str] = {"image": "picture", "video": "video", "audio": "sound"}


def media_phrase(kind: MediaKind, count: int) -> str:
    """How sentences count media: 1 video, 3 pictures."""
    return f"{count} {MEDIA_NAMES[kind]}" if count == 1 else f"{count} {MEDIA_NAMES[kind]}s"


def too_many_media(kind: MediaKind, count: int, limit: int, param: str) -> ClientFault:
    """The fault of a request that brings more of a kind than is allowed."""
    brings = f"The request brings {media_phrase(kind, count)}"
    if limit:
        return RequestTooLarge(f"{brings}; at most {limit} are allowed.", param=param)
    return InvalidRequest(
        f"{brings}, but none is allowed here. spec.model.modalities.{kind}.maxPerPrompt (with "
        f"chiasm serve: --{kind}s) allows some, where the model's family takes them.",
        param=param,
    )


_LENGTH = struct.Struct(">I")

# Reading the head takes time that nobody else gets; media stand behind it.
MAX_HEAD_BYTES = 16 * 2**20


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextPart(_Message):
    """Words of a turn; never read as control tokens, whatever they spell."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(_Message):
    """The place of a picture in a turn; its bytes are number `index` behind the head."""

    type: Literal["image"] = "image"
    index: int = Field(ge=0)
    detail: Detail = Field(
        default="auto", description="Which compression; the worker's VisionConfig says how much"
    )


class VideoPart(_Message):
    """The place of a video in a turn; its bytes are video number `index` behind the head."""

    type: Literal["video"] = "video"
    index: int = Field(ge=0)


class AudioPart(_Message):
    """The place of a sound in a turn; its bytes are sound number `index` behind the head."""

    type: Literal["audio"] = "audio"
    index: int = Field(ge=0)


MediaPart = ImagePart | VideoPart | AudioPart
ContentPart = Annotated[TextPart | ImagePart | VideoPart | AudioPart, Field(discriminator="type")]


class ChatMessage(_Message):
    """One turn."""

    role: Literal["system", "user", "assistant"]
    content: tuple[ContentPart, ...]


class GenerateHead(_Message):
    """The JSON in front of the media."""

    request_id: str = Field(min_length=1, max_length=128)
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    sampling: Sampling = Sampling()
    priority: Priority = Field(default=0, description="Lower is served earlier.")
    scope_fp: Digest = Field(
        default=SHARED_SCOPE_FP,
        description="Who may find what this request leaves in caches; absent: who has no tenant.",
    )
    image_sizes_bytes: tuple[Annotated[int, Field(ge=0)], ...] = ()
    video_sizes_bytes: tuple[Annotated[int, Field(ge=0)], ...] = ()
    audio_sizes_bytes: tuple[Annotated[int, Field(ge=0)], ...] = ()

    def media_parts(self) -> tuple[MediaPart, ...]:
        """The media in the order in which the conversation shows them."""
        return tuple(
            part
            for message in self.messages
            for part in message.content
            if not isinstance(part, TextPart)
        )


@dataclass(frozen=True)
class MediaFiles:
    """The files of one request, by kind; a part's index counts within its kind."""

    images: tuple[bytes, ...] = ()
    videos: tuple[bytes, ...] = ()
    audios: tuple[bytes, ...] = ()

    def of(self, kind: MediaKind) -> tuple[bytes, ...]:
        """The files of one kind of part."""
        return {"image": self.images, "video": self.videos, "audio": self.audios}[kind]


class TokenLogprob(_Message):
    """A token and how likely it was."""

    token: str
    token_bytes: tuple[int, ...]
    logprob: float


class ChosenLogprob(TokenLogprob):
    """The chosen token beside its most likely alternatives."""

    top: tuple[TokenLogprob, ...] = ()


class TokenEvent(_Message):
    """Text that became certain: whole characters, so it may be empty or cover several tokens.

    `logprobs` are those of the tokens whose text is now certain: they may lag behind `token_ids`.
    """

    type: Literal["token"] = "token"
    index: int = 0
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[ChosenLogprob, ...] | None = None


class Usage(_Message):
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    image_tokens: int
    video_tokens: int = 0
    audio_tokens: int = 0
    uncompressed_image_tokens: int = Field(
        default=0, description="What the same pictures would have taken at detail `high`"
    )
    image_compression: tuple[int, ...] = Field(
        default=(), description="For each picture in the order of the prompt: 1 (none), 4, 8 or 16"
    )


class FinishEvent(_Message):
    """The end of one choice; the last choice to end brings the whole request's usage."""

    type: Literal["finish"] = "finish"
    index: int = 0
    reason: Literal["stop", "length"]
    stop_reason: str | int | None = Field(
        default=None, description="The stop string or stop token id that ended it, if one did"
    )
    usage: Usage | None


class ErrorEvent(_Message):
    """The last event when generation failed after it began."""

    type: Literal["error"] = "error"
    error: ErrorBody


Event = Annotated[TokenEvent | FinishEvent | ErrorEvent, Field(discriminator="type")]
EVENT: TypeAdapter[TokenEvent | FinishEvent | ErrorEvent] = TypeAdapter(Event)


class ModelCard(_Message):
    """GET /model of the worker."""

    id: str
    family: str
    architecture: str
    max_model_len: int


class IdentityReport(_Message):
    """GET /identity of the worker: the manifest behind its digests."""

    compute_fp: str
    repr_fp: str
    incarnation: str
    fields: dict[str, Value]


PodReason = Literal[
    "Ready",
    "WorkerStarting",
    "WorkerUnavailable",
    "IdentityMismatch",
    "ProbePictureFailed",
    "ModelLoadFailed",
    "TenantKeysRefused",
]


class PodState(_Message):
    """GET /state of a sidecar: what the operator reads on each pod.

    Attributes:
        tier_faults: a sentence for each memory tier that was configured and cannot be opened; the
            pod serves without it, and tries again.
    """

    ready: bool
    reason: PodReason
    message: str
    model_id: str
    identity: IdentityReport | None = None
    tier_faults: tuple[str, ...] = ()
    traffic: TrafficReport = TrafficReport()
    configuration: ConfigReport = ConfigReport()


class HeldNamespace(_Message):
    """What a pod's tiers hold of a retired namespace, or of all tenants of one release."""

    name: str
    state: Literal["live", "draining", "retired", "swept"]
    tier_bytes: dict[str, int] = Field(
        description="Of each tier that counts its own, by name; Valkey's are not counted by pods."
    )


class HeldNamespaces(_Message):
    """GET /namespaces of a sidecar: what `chiasm namespaces list` shows."""

    namespaces: tuple[HeldNamespace, ...] = ()


def encode_request(head: GenerateHead, files: MediaFiles) -> bytes:
    """One request body; the head's sizes are set from the files."""
    sizes = {
        f"{kind}_sizes_bytes": tuple(len(data) for data in files.of(kind)) for kind in MEDIA_NAMES
    }
    data = head.model_copy(update=sizes).model_dump_json().encode()
    media = (each for kind in MEDIA_NAMES for each in files.of(kind))
    return b"".join([_LENGTH.pack(len(data)), data, *media])


def decode_request(body: bytes) -> tuple[GenerateHead, MediaFiles]:
    """The head and the media of one request body.

    Raises: InvalidRequest when lengths do not add up or a part points nowhere, RequestTooLarge
    when the head exceeds MAX_HEAD_BYTES, pydantic.ValidationError (a ValueError) when it is not a
    GenerateHead.
    """
    if len(body) < _LENGTH.size:
        raise InvalidRequest(f"The request body has {len(body)} bytes; its head needs at least 4.")
    (length,) = _LENGTH.unpack_from(body)
    if length > MAX_HEAD_BYTES:
        raise RequestTooLarge(
            f"The head has {length} bytes; at most {MAX_HEAD_BYTES} are allowed. Send less text.",
            param="messages",
        )
    start = _LENGTH.size + length
    if start > len(body):
        raise InvalidRequest(f"The head claims {length} bytes; the body has {len(body)}.")
    head = GenerateHead.model_validate_json(body[_LENGTH.size : start])
    kinds = (head.image_sizes_bytes, head.video_sizes_bytes, head.audio_sizes_bytes)
    if start + sum(map(sum, kinds)) != len(body):
        raise InvalidRequest("The media's sizes do not add up to the body's length.")
    files = _cut(body, start, [size for sizes in kinds for size in sizes])
    media = MediaFiles(*(tuple(next(files) for _ in sizes) for sizes in kinds))
    for part in head.media_parts():
        if part.index >= len(media.of(part.type)):
            raise InvalidRequest(
                f"{part.type.title()} part {part.index} has no {MEDIA_NAMES[part.type]} behind it."
            )
    return head, media


def _cut(body: bytes, start: int, sizes: Sequence[int]) -> Iterator[bytes]:
    for size in sizes:
        yield body[start : start + size]
        start += size
