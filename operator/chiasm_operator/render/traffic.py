"""The ConfigMap that every sidecar follows: the plan, which values of the configuration it may
take, and how far the plan's rollout has come.

All are one object so that one write changes them: whoever is killed behind it finds them fitting.
"""

from __future__ import annotations

import json
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.status import StatusRollout
from chiasm_contract.configuration import Approvals
from chiasm_contract.traffic import TrafficPlan, Version
from pydantic import BaseModel

from chiasm_operator.render.target import Target

ROLLOUT_KEY = "rollout.json"


def address(target: Target, revision: str) -> str:
    """Where the sidecars of one revision answer."""
    host = f"{target.revision_name(revision)}.{target.resource.namespace}.svc"
    return f"{host}:{names.API_PORT}"


def whole(target: Target) -> TrafficPlan:
    """The first plan: the present revision answers everything."""
    stable = Version(revision=target.revision, address=address(target, target.revision))
    return TrafficPlan(epoch=1, window=1, stable=stable)


# What is only told follows from the rest, and would change the object all the time.
_TOLD = {"state", "message", "weight", "epoch"}


def _file(content: BaseModel, without: set[str] | None = None) -> str:
    dumped = content.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=without)
    return json.dumps(dumped, indent=2, sort_keys=True) + "\n"


def render(
    target: Target, plan: TrafficPlan, rollout: StatusRollout, approvals: Approvals | None = None
) -> dict[str, Any]:
    """The ConfigMap; without `approvals` where there is nothing to approve."""
    allowed = {names.APPROVALS_KEY: _file(approvals)} if approvals is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": target.metadata(target.traffic_name),
        "data": {
            names.TRAFFIC_KEY: _file(plan),
            ROLLOUT_KEY: _file(rollout, without=_TOLD),
            **allowed,
        },
    }
