"""When a condition's time moves, and what counts as a transition."""

from __future__ import annotations

from chiasm_contract.conditions import (
    Condition,
    ConditionType,
    Finding,
    Reason,
    Truth,
    merge,
    transitions,
)

BEFORE = "2026-01-01T00:00:00Z"
NOW = "2026-01-02T00:00:00Z"


def condition(status: Truth, reason: Reason) -> Condition:
    return Condition("Ready", status.value, reason.value, "Before.", BEFORE, 1)


def finding(status: Truth, reason: Reason) -> Finding:
    return Finding(ConditionType.READY, status, reason, "Now.")


def test_the_time_moves_with_the_status_only() -> None:
    stored = [condition(Truth.FALSE, Reason.ROLLOUT_IN_PROGRESS)]
    (same,) = merge(stored, [finding(Truth.FALSE, Reason.IMAGE_PULL_FAILED)], NOW, 2)
    assert (same.last_transition_time, same.reason) == (BEFORE, "ImagePullFailed")
    assert (same.message, same.observed_generation) == ("Now.", 2)
    (other,) = merge(stored, [finding(Truth.TRUE, Reason.ALL_REPLICAS_READY)], NOW, 2)
    assert other.last_transition_time == NOW


def test_a_new_condition_starts_now() -> None:
    (new,) = merge([], [finding(Truth.UNKNOWN, Reason.NOT_REPORTED)], NOW, 1)
    assert new.last_transition_time == NOW


def test_a_transition_is_a_change_of_status_or_reason() -> None:
    stored = [condition(Truth.FALSE, Reason.ROLLOUT_IN_PROGRESS)]
    same = merge(stored, [finding(Truth.FALSE, Reason.ROLLOUT_IN_PROGRESS)], NOW, 2)
    assert not transitions(stored, same)
    other = merge(stored, [finding(Truth.FALSE, Reason.CRASH_LOOP)], NOW, 2)
    assert transitions(stored, other) == other
    assert transitions([], same) == same
