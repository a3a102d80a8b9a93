"""Is the canary worse than stable? Judged from exact counts of both, taken at the same time."""

from chiasm_operator.reconcile.analysis.judging import Kind, Policy, Verdict, judge

__all__ = ["Kind", "Policy", "Verdict", "judge"]
