"""Is the canary as good as the stable revision? Judged from exact counts, for each modality."""

from __future__ import annotations

from chiasm_operator.reconcile.analysis.judge import judge
from chiasm_operator.reconcile.analysis.verdict import Verdict

__all__ = ["Verdict", "judge"]
