from __future__ import annotations

import pytest
from chiasm_worker.kvcache.rebuild_cost import BlockKind, Rebuild, RebuildCosts


def test_before_anything_is_measured_tokens_cost_the_same():
    costs = RebuildCosts()
    text = costs.seconds(Rebuild(BlockKind.TEXT_KV, 16))
    assert text == costs.seconds(Rebuild(BlockKind.ENCODER_OUTPUT, 16, "image")) > 0


def test_each_modality_learns_apart_and_media_kv_is_only_prefilled():
    costs = RebuildCosts()
    costs.observe_prefill(100, 1.0)
    costs.observe_encode("image", 10, 2.0)
    costs.observe_encode("audio", 10, 4.0)
    assert costs.seconds(Rebuild(BlockKind.TEXT_KV, 16)) == pytest.approx(0.16)
    assert costs.seconds(Rebuild(BlockKind.MEDIA_KV, 16, "image")) == pytest.approx(0.16)
    assert costs.seconds(Rebuild(BlockKind.ENCODER_OUTPUT, 16, "image")) == pytest.approx(3.2)
    assert costs.seconds(Rebuild(BlockKind.CROSS_KV, 16, "audio")) == pytest.approx(6.4)


def test_a_slow_first_step_is_forgotten():
    costs = RebuildCosts()
    costs.observe_prefill(10, 10.0)
    for _ in range(1000):
        costs.observe_prefill(100, 0.1)
    assert costs.seconds_per_token("text") == pytest.approx(0.001, rel=0.01)


@pytest.mark.parametrize(("num_tokens", "seconds"), [(0, 1.0), (1, -1.0)])
def test_what_cannot_be_is_no_measurement(num_tokens: int, seconds: float):
    with pytest.raises(ValueError, match="is no measurement"):
        RebuildCosts().observe_prefill(num_tokens, seconds)
