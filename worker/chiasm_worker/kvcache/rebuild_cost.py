"""What it would cost to have a block's content again, learned while running.

A K/V block is prefilled again, an encoder output (and what is projected from it) is encoded again.
Both are paid in seconds, measured per modality as a decayed ratio of seconds to tokens, so that
one slow first step is soon forgotten. An encoder output has an entry of its own; the K/V of a
picture therefore costs its prefill only, or the same seconds would be counted twice.

Must not know: clocks, blocks, torch.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

TEXT = "text"
_PRIOR_SECONDS_PER_TOKEN = 1e-3
_DECAY = 0.99


class BlockKind(enum.StrEnum):
    """What a findable block holds."""

    TEXT_KV = "text_kv"
    MEDIA_KV = "media_kv"  # at least one of its tokens stands for a piece of a media item
    CROSS_KV = "cross_kv"  # keys and values of cross-attention layers, made from encoder output
    ENCODER_OUTPUT = "encoder_output"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The work that would bring a findable content back."""

    kind: BlockKind
    num_tokens: int
    # Of the media that any of its tokens stand for: whose encoder has to run, where one has to.
    modality: str = TEXT


class RebuildCosts:
    """Seconds per token of prefilling, and of encoding each modality."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def observe_prefill(self, num_tokens: float, seconds: float) -> None:
        """Learn from tokens that were prefilled."""
        self._observe(TEXT, num_tokens, seconds)

    def observe_encode(self, modality: str, num_tokens: float, seconds: float) -> None:
        """Learn from media tokens that an encoder made."""
        self._observe(modality, num_tokens, seconds)

    def seconds_per_token(self, name: str) -> float:
        """What was learned of `text` (prefill) or of a modality's encoder; a guess before that."""
        tokens, seconds = self._sums.get(name, (1.0, _PRIOR_SECONDS_PER_TOKEN))
        return seconds / tokens

    def seconds(self, rebuild: Rebuild) -> float:
        """What it would take to have a content again."""
        encodes = rebuild.kind in (BlockKind.ENCODER_OUTPUT, BlockKind.CROSS_KV)
        return rebuild.num_tokens * self.seconds_per_token(rebuild.modality if encodes else TEXT)

    def _observe(self, name: str, num_tokens: float, seconds: float) -> None:
        if num_tokens <= 0 or seconds < 0:
            raise ValueError(
                f"{num_tokens} tokens in {seconds} seconds is no measurement; both must be real."
            )
        tokens, total = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (tokens * _DECAY + num_tokens, total * _DECAY + seconds)
