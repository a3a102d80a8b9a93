"""The shipped file, the rule made of it, and that the rule names only metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from chiasm_contract.metric_specs import METRIC_SPECS
from chiasm_worker.decay.record import (
    NORMAL_NAME,
    RATIO_NAME,
    RULE_NAME,
    Decay,
    growth_expression,
    recording_rules,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def shipped() -> Decay:
    return Decay.read(ROOT / "docs" / "decay.json")


def test_the_rule_is_made_of_the_shipped_file(shipped: Decay) -> None:
    written = (ROOT / "charts" / "chiasm" / "alerts" / "decay.yaml").read_text()
    assert written == recording_rules(shipped)
    [group] = yaml.safe_load(written)["groups"]
    assert [rule["record"] for rule in group["rules"]] == [RATIO_NAME, NORMAL_NAME, RULE_NAME]


def test_the_rule_names_only_metrics_that_there_are(shipped: Decay) -> None:
    [group] = yaml.safe_load(recording_rules(shipped))["groups"]
    known = {name for spec in METRIC_SPECS for name in spec.sample_names}
    known |= {rule["record"] for rule in group["rules"]}
    named = {n for rule in group["rules"] for n in re.findall(r"[a-z_]+:\w[\w:]*", rule["expr"])}
    named |= {n for rule in group["rules"] for n in re.findall(r"chiasm_\w+", rule["expr"])}
    assert named
    assert named <= known


def test_the_better_curve_is_the_one_that_counts(shipped: Decay) -> None:
    power = shipped.model_copy(update={"better": "power"})
    affine = shipped.model_copy(update={"better": "affine"})
    assert f"clamp_min({RATIO_NAME} - 1, 0) ^" in growth_expression(power)
    assert growth_expression(affine) == f"(1 + {shipped.affine.slope:.4g} * {RATIO_NAME})"
    errors = (shipped.power.error_mean, shipped.affine.error_mean)
    assert shipped.better == ("power" if errors[0] < errors[1] else "affine")


def test_the_shipped_curve_was_measured_over_a_wide_range(shipped: Decay) -> None:
    ratios = [point.ratio for point in shipped.points]
    assert min(ratios) < 1
    assert max(ratios) > 8
    assert set(shipped.drivers) == {"reading", "positions", "encoder", "prefill"}
