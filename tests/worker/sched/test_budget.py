from __future__ import annotations

from chiasm_worker.kvcache.prefix_cache import Compression, MediaIdentity
from chiasm_worker.sched.budget import StepBudget, encoder_tokens


def test_compressed_items_cost_what_the_encoder_computes():
    pooled = Compression("mean", 1, 4, token_grid=(1, 4, 4), window=(2, 2))
    assert encoder_tokens(MediaIdentity("image", b"d" * 32, (4, 4), 4, pooled)) == 16


def test_encodes_are_spent_and_a_waiver_lasts_while_it_is_given():
    budget = StepBudget(tokens=8, encoder_tokens=10)
    budget.spend_encode(7)
    assert (budget.may_encode(3), budget.may_encode(4), budget.has_encodes) == (True, False, True)
    budget.is_waived = True
    assert budget.may_encode(4)
