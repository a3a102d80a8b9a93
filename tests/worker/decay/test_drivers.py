"""A stage's share is what of the growth goes without it."""

from __future__ import annotations

import pytest
from chiasm_worker.decay.drivers import Ends, shares
from hypothesis import given
from hypothesis import strategies as st

COSTS = st.dictionaries(st.sampled_from("abc"), st.tuples(st.floats(0, 1), st.floats(1, 9)))


@given(COSTS, st.floats(0.1, 5))
def test_shares_of_stages_that_only_add_up_are_their_parts(
    costs: dict[str, tuple[float, float]], rest: float
) -> None:
    whole = Ends(1 + sum(low for low, _ in costs.values()),
                 1 + rest + sum(high for _, high in costs.values()))  # fmt: skip
    without = {n: Ends(whole.low - low, whole.high - high) for n, (low, high) in costs.items()}
    found = shares(whole, without)
    for name, (low, high) in costs.items():
        assert found[name] == pytest.approx((high - low) / whole.growth)
    assert sum(found.values()) == pytest.approx(1 - rest / whole.growth)


def test_without_growth_nothing_has_a_share() -> None:
    with pytest.raises(ValueError, match="does not grow"):
        shares(Ends(2.0, 1.0), {})
