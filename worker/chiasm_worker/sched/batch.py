"""One step's work as plain data: which tokens of which requests, which media before them.

Must not know: why these, torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chiasm_worker.kvcache.media_cache import MediaHandle
from chiasm_worker.request import Request


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens start..start+num_tokens-1 of a request, computed in this step."""

    request: Request
    start: int
    num_tokens: int
    # True when the chunk ends at the last known token: its logits choose the next one.
    samples: bool

    @property
    def end(self) -> int:
        """First token after the chunk."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class EncodeJob:
    """A media item whose encoder output must be written before this step's chunks read it."""

    request: Request
    span_index: int
    handle: MediaHandle


@dataclass(slots=True)
class ScheduledBatch:
    """One step."""

    chunks: list[Chunk] = field(default_factory=list)
    encodes: list[EncodeJob] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    def take_out(self, request: Request) -> Chunk | None:
        """Remove the chunk of a request that was scheduled and then preempted."""
        for index, chunk in enumerate(self.chunks):
            if chunk.request is request:
                return self.chunks.pop(index)
        return None
