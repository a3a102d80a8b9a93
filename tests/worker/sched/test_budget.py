from __future__ import annotations

from chiasm_worker.sched.budget import StepBudget


def test_encodes_are_spent_and_a_waiver_lasts_while_it_is_given():
    budget = StepBudget(tokens=8, encoder_tokens=10)
    budget.spend_encode(7)
    assert (budget.may_encode(3), budget.may_encode(4), budget.has_encodes) == (True, False, True)
    budget.is_waived = True
    assert budget.may_encode(4)
