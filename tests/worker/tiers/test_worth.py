"""What goes to the tiers: what is dear for its bytes, media at once, text if wanted again."""

from __future__ import annotations

import pytest
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild, RebuildCosts
from chiasm_worker.tiers.worth import OfferPolicy

POLICY = OfferPolicy(long_chain_tokens=64, bytes_per_second=1e9)


def costs() -> RebuildCosts:
    learned = RebuildCosts()
    learned.observe_prefill(1000, 0.1)  # 100 us a token
    learned.observe_encode("image", 1000, 1.0)
    return learned


def wants(kind: BlockKind, num_bytes: int = 1000, end: int = 16, *, again: bool = False) -> bool:
    return POLICY.wants(
        Rebuild(kind, 16, "image"), costs(), num_bytes, end, was_used_again=again
    )  # fmt: skip


@pytest.mark.parametrize("kind", [BlockKind.MEDIA_KV, BlockKind.CROSS_KV, BlockKind.ENCODER_OUTPUT])
def test_media_go_at_first_sight(kind: BlockKind):
    assert wants(kind)


def test_text_goes_when_it_was_used_again_or_its_chain_is_long():
    assert not wants(BlockKind.TEXT_KV)
    assert wants(BlockKind.TEXT_KV, again=True)
    assert [wants(BlockKind.TEXT_KV, end=end) for end in (48, 64)] == [False, True]


def test_what_is_computed_as_fast_as_it_is_moved_stays():
    # 16 tokens take 1.6 ms to prefill: 1.6 MB take as long to move. Encoding takes ten times that.
    assert [wants(BlockKind.MEDIA_KV, num_bytes=n) for n in (1_599_000, 1_601_000)] == [True, False]
    assert wants(BlockKind.ENCODER_OUTPUT, num_bytes=15_000_000)
    assert not wants(BlockKind.ENCODER_OUTPUT, num_bytes=17_000_000)
