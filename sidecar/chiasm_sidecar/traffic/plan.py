"""Whether a plan can be followed: what is read is taken as a whole, or refused with a sentence.

Must not know: files, clocks. Pure functions of their arguments.
"""

from __future__ import annotations

import re

from chiasm_contract.traffic import TrafficPlan
from pydantic import ValidationError

_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_MAX_FAULTS_NAMED = 3


class PlanRefused(ValueError):
    """The plan cannot be followed; the message says what is wrong with it."""


def parse(data: bytes, current: TrafficPlan | None) -> TrafficPlan:
    """The plan in `data`, if it may follow `current`.

    Raises: PlanRefused when it is malformed, contradicts itself, or is older than `current`.
    """
    try:
        plan = TrafficPlan.model_validate_json(data)
    except ValidationError as error:
        raise PlanRefused(f"The plan is malformed: {_faults(error)}.") from None
    if plan.canary is not None and plan.canary.revision == plan.stable.revision:
        raise PlanRefused(f"Stable and canary are both revision {plan.stable.revision!r}.")
    if plan.canary is None and (plan.share or plan.mirror):
        raise PlanRefused("There is a share or a mirror, but no canary.")
    for version in (plan.stable, plan.canary):
        if version is not None and not version.revision:
            raise PlanRefused("A revision has no name.")
    addresses = [version.address for version in (plan.stable, plan.canary) if version is not None]
    for address in (*addresses, *plan.member_addresses):
        found = _ADDRESS.fullmatch(address)
        if found is None or not 0 < int(found[1]) < 65536:
            raise PlanRefused(f"{address[:80]!r} is no host:port.")
    if len(set(plan.members)) != len(plan.members):
        raise PlanRefused("A member is named twice; each has one place.")
    if plan.member_addresses and len(plan.member_addresses) != len(plan.members):
        raise PlanRefused(
            f"There are {len(plan.members)} members but {len(plan.member_addresses)} addresses; "
            "each member has one, or none has."
        )
    if current is not None and plan.epoch <= current.epoch and plan != current:
        raise PlanRefused(
            f"Epoch {plan.epoch} does not follow {current.epoch}; each other plan needs a larger "
            "one."
        )
    return plan


def _faults(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_input=False)[:_MAX_FAULTS_NAMED]
    places = (".".join(map(str, detail["loc"])) or "the whole" for detail in details)
    return "; ".join(f"{p}: {d['msg']}" for p, d in zip(places, details, strict=True))
