"""Which findable blocks are worth a place in the tiers: seconds to have them again against bytes.

A block goes to the tiers only if computing it takes longer than moving it there and back. Of those,

    media K/V, cross-attention K/V, encoder outputs   at once: dear to make, few bytes a second
    text K/V                                          once it was used again, or its chain is long

because most text is asked once and is cheap, while a long chain (a document, a conversation) costs
seconds if it comes back. A block cannot be found without those before it, so whatever is offered
takes its ancestors along.

Pure; must not know: blocks, slots, clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild, RebuildCosts


@dataclass(frozen=True, slots=True)
class OfferPolicy:
    """When to offer.

    Attributes:
        long_chain_tokens: text from here on goes to the tiers at first sight.
        bytes_per_second: of copying, checking and copying back, on one core with some to spare.
        max_step_bytes: written between two steps, so that no running answer waits long.
    """

    long_chain_tokens: int = 256
    bytes_per_second: float = 1e9
    max_step_bytes: int = 8 * 2**20

    def wants(
        self,
        rebuild: Rebuild,
        costs: RebuildCosts,
        num_bytes: int,
        chain_tokens: int,
        *,
        was_used_again: bool,
    ) -> bool:
        """Whether what takes `num_bytes` is worth offering.

        Args:
            rebuild: the work that would bring it back.
            costs: seconds per token of that work.
            num_bytes: of all its payloads.
            chain_tokens: tokens from the start of the prompt to the end of a K/V block.
            was_used_again: whether a later request found it in the own memory.
        """
        if costs.seconds(rebuild) * self.bytes_per_second <= num_bytes:
            return False
        if rebuild.kind is not BlockKind.TEXT_KV:
            return True
        return was_used_again or chain_tokens >= self.long_chain_tokens
