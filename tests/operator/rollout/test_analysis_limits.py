"""What counts as worse is what `spec.rollout.analysis` says."""

from __future__ import annotations

import pytest
from chiasm_contract.api.rollout import Analysis
from chiasm_contract.traffic import Counts
from chiasm_operator.reconcile.analysis import Policy
from chiasm_operator.reconcile.rollout import forward
from pydantic import ValidationError

from tests.operator.rollout.made_up.limits import ANSWERED, LIMITS, MIRROR
from tests.operator.rollout.made_up.scenarios import compare, spec
from tests.operator.rollout.made_up.world import World


@pytest.mark.parametrize("name", LIMITS)
def test_what_passes_a_limit_is_taken_back_and_what_keeps_it_goes_on(
    name: str, served: World
) -> None:
    limit = LIMITS[name]
    steps = list(limit.steps)
    compare(limit.canary, ANSWERED)(served)
    by = {} if limit.by is None else {name: limit.by}
    spec(2, steps=steps, analysis={"failureLimit": 0, **by})(served)
    served.settled()
    assert served.state == "Aborted"
    assert served.condition("AnalysisHealthy") == f"False {limit.reason}"
    spec(3, steps=steps, analysis={"failureLimit": 0, name: limit.borne})(served)
    served.settled()
    assert served.condition("AnalysisHealthy") == "True NotWorse"
    assert served.rollout["currentStep"] == 2
    assert served.share == (0 if "mirror" in steps[0] else 500)


def test_mirrored_answers_are_no_data_while_nobody_compares_them(served: World) -> None:
    compare(Counts(shadowed=1000, agreed=1000), ANSWERED)(served)
    spec(2, steps=MIRROR)(served)
    served.live(60)
    assert served.condition("AnalysisHealthy") == "Unknown NoData"
    (found,) = (
        item["message"]
        for item in served.resource["status"]["conditions"]
        if item["type"] == "AnalysisHealthy"
    )
    assert "spec.rollout.analysis.minAgreementPercent" in found


def test_what_is_worse_by_default_is_what_the_comparison_says() -> None:
    assert forward.limits(Analysis()) == Policy()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxErrorIncreasePercent", -1),
        ("maxErrorIncreasePercent", 101),
        ("maxFirstTokenRatio", 0.9),
        ("maxInterTokenRatio", 1001),
        ("maxOutputLengthChangePercent", -1),
        ("maxGuardRejectIncrease", -0.1),
        ("minAgreementPercent", 0),
        ("minAgreementPercent", 101),
    ],
)
def test_a_limit_that_means_nothing_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        Analysis.model_validate({name: value})
