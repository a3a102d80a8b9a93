"""One request's life inside the engine, as plain data.

A request owns its tokens (prompt, then output), where media stand among them, and how far the
model has got: tokens 0..num_computed_tokens-1 have K and V in its blocks. It is prefilling while
that is less than all its tokens, and decoding while exactly one token is missing.

Must not know: torch, HTTP, the block pool.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chiasm_worker.kvcache.block_table import BlockTable
from chiasm_worker.kvcache.media_cache import MediaHandle
from chiasm_worker.kvcache.prefix_cache import CacheScope, ContentChain
from chiasm_worker.media_identity import CrossSpan, MediaIdentity, MediaSpan, one_modality


class RequestStatus(enum.Enum):
    """Where a request stands; a preempted one waits again with its tokens kept."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(enum.Enum):
    """Why no further token follows."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when to stop. Temperature 0 is greedy; top_k 0 means no limit."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    num_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenised conversation with its media and the position of every token."""

    token_ids: tuple[int, ...]
    spans: tuple[MediaSpan, ...]
    # [num_axes, num_tokens] int64; one axis for plain rotary positions, three for M-RoPE.
    positions: npt.NDArray[np.int64]
    # (start, end) of the tokens that see one another, in order, disjoint; a chunk cuts none.
    bidirectional: tuple[tuple[int, int], ...] = ()
    # Media that the text reads by cross-attention instead of among its tokens.
    cross: tuple[CrossSpan, ...] = ()
    # All media items, however they are read.
    media: tuple[MediaSpan | CrossSpan, ...] = field(init=False)
    # The position, on every axis, of the first token after the prompt.
    next_position: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "media", self.spans + self.cross)
        object.__setattr__(self, "next_position", int(self.positions.max()) + 1)

    @property
    def num_media_tokens(self) -> Counter[str]:
        """Per modality the tokens from first to last of its items, separators between them too."""
        counts: Counter[str] = Counter()
        for span in self.spans:
            counts[span.item.modality] += span.end - span.start
        for cross in self.cross:
            counts[cross.item.modality] += 1
        return counts

    @property
    def modality(self) -> str:
        """What its media are: one modality, `mixed`, or `text` without any."""
        return one_modality(span.item.modality for span in self.media)

    @property
    def num_uncompressed_image_tokens(self) -> int:
        """What the same pictures would take without compression."""
        saved = (item.num_encoder_tokens - item.num_tokens for item in self._images)
        return self.num_media_tokens["image"] + sum(saved)

    @property
    def image_compression(self) -> tuple[int, ...]:
        """The ratio of each picture, in the order of the prompt."""
        return tuple(item.ratio for item in self._images)

    @property
    def image_tokens(self) -> Counter[int]:
        """Compression -> tokens of the pictures that have it."""
        tokens: Counter[int] = Counter()
        for span in self.spans:
            if span.item.modality == "image":
                tokens[span.item.ratio] += span.end - span.start
        if self.cross:
            tokens[1] += sum(cross.item.modality == "image" for cross in self.cross)
        return tokens

    @property
    def _images(self) -> Iterator[MediaIdentity]:
        return (span.item for span in self.media if span.item.modality == "image")


@dataclass(slots=True, eq=False)
class Request:
    """A request known to the scheduler."""

    request_id: str
    prompt: Prompt
    params: SamplingParams
    scope: CacheScope
    chain: ContentChain
    table: BlockTable
    # Lower is served earlier.
    priority: int = 0
    # Which of the answers to one prompt this is.
    choice: int = 0

    token_ids: list[int] = field(init=False)
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    num_computed_tokens: int = 0
    # Prompt tokens found in the prefix cache when the request was first admitted.
    num_cached_tokens: int | None = None
    num_preemptions: int = 0
    # Its place in every queue, given by the scheduler when it arrives.
    rank: tuple[int, int, int] = (0, 0, 0)
    # Index in prompt.media -> encoder output held for the chunks still to come.
    media: dict[int, MediaHandle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens before the first generated one."""
        return len(self.prompt.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - len(self.prompt.token_ids)

    @property
    def is_decoding(self) -> bool:
        """Whether only the last generated token is missing."""
        return self.num_output_tokens > 0 and self.num_computed_tokens + 1 == len(self.token_ids)

    @property
    def output_token_ids(self) -> Sequence[int]:
        """The generated tokens."""
        return self.token_ids[len(self.prompt.token_ids) :]

    def num_media_behind(self, num_tokens: int) -> int:
        """Media items that none but the first `num_tokens` tokens read. Of several answers to one
        prompt only the first has any: the others never need the encoder."""
        ends = [span.needed_until for span in self.prompt.media] if self.choice == 0 else []
        return sum(end <= num_tokens for end in ends)

    def spans_in(self, start: int, end: int) -> list[int]:
        """Indices of the media spans that touch the tokens start..end-1."""
        return [
            i for i, span in enumerate(self.prompt.spans) if span.start < end and span.end > start
        ]

    def media_in(self, start: int, end: int) -> list[int]:
        """Indices in `prompt.media` of the items that the tokens start..end-1 read."""
        return [
            i
            for i, span in enumerate(self.prompt.media)
            if span.needed_from < end and span.needed_until > start
        ]
