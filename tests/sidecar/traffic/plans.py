"""Plans to test with."""

from __future__ import annotations

from typing import Any

from chiasm_contract.traffic import TrafficPlan, Version

STABLE, CANARY = "v1-stable", "v1-canary"


def plan(epoch: int = 1, **fields: Any) -> TrafficPlan:
    """Half to the canary, unless `fields` say otherwise."""
    stable = Version(revision=STABLE, address="127.0.0.1:1")
    canary = Version(revision=CANARY, address="127.0.0.1:2")
    given = {"window": 1, "stable": stable, "canary": canary, "share": 5000, **fields}
    return TrafficPlan(epoch=epoch, **given)


def without_canary(epoch: int = 1, **fields: Any) -> TrafficPlan:
    """What an abort or the end of a promotion leaves."""
    return plan(epoch, canary=None, share=0, **fields)
