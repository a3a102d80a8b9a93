"""One look: the error rate of each modality, both revisions over the same time.

The test is one-sided for two proportions (normal approximation, pooled variance): with
`_Z` = 2.33 a canary as good as stable is called bad in one of a hundred looks. A modality with
fewer than `minSamples` requests on either side says nothing; when none says anything the look
holds. Must not know: clocks, which step asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from chiasm_contract.api.rollout import Analysis
from chiasm_contract.conditions import Reason
from chiasm_contract.traffic import Counts

from chiasm_operator.reconcile.analysis.verdict import Verdict

_Z = 2.33


def judge(policy: Analysis, canary: Mapping[str, Counts], stable: Mapping[str, Counts]) -> Verdict:
    """Compare what became of the requests of both."""
    nothing = Counts()
    compared = 0
    for modality in sorted(canary.keys() | stable.keys()):
        mine, theirs = canary.get(modality, nothing), stable.get(modality, nothing)
        if min(mine.requests, theirs.requests) < policy.min_samples:
            continue
        compared += 1
        if _z(mine, theirs) > _Z:
            return Verdict(
                "fail",
                Reason.ANALYSIS_FAILED,
                f"{modality}: {mine.errors} of {mine.requests} requests failed, of stable "
                f"{theirs.errors} of {theirs.requests}.",
            )
    if not compared:
        counted = sum(each.requests for each in canary.values())
        return Verdict(
            "hold",
            Reason.NOT_ENOUGH_DATA,
            f"The canary has ended {counted} requests; spec.rollout.analysis.minSamples asks for "
            f"{policy.min_samples} of each revision in one modality.",
        )
    return Verdict("pass", Reason.ANALYSIS_PASSED, f"{compared} modalities show no fault.")


def _z(mine: Counts, theirs: Counts) -> float:
    pooled = (mine.errors + theirs.errors) / (mine.requests + theirs.requests)
    spread = sqrt(pooled * (1 - pooled) * (1 / mine.requests + 1 / theirs.requests))
    difference = mine.errors / mine.requests - theirs.errors / theirs.requests
    return difference / spread if spread else 0.0
