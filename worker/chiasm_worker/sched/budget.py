"""What may still be computed in the step that is being chosen.

Decoder tokens and encoder tokens are budgeted apart, so that however many pictures arrive at once,
the time between two tokens of a running answer stays bounded. Items that alone exceed the encoder's
budget and cannot be had one after the other are encoded in a step that encodes nothing else.

Must not know: requests, blocks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StepBudget:
    """What is left of a step."""

    tokens: int
    encoder_tokens: int
    has_encodes: bool = False
    # True while a chunk is tried that needs more than a whole step's encoder tokens.
    is_waived: bool = False

    def may_encode(self, num_tokens: int) -> bool:
        """Whether so many encoder tokens still fit into this step."""
        return self.is_waived or num_tokens <= self.encoder_tokens

    def spend_encode(self, num_tokens: int) -> None:
        """Take encoder tokens."""
        self.encoder_tokens -= num_tokens
        self.has_encodes = True
