"""What people ask of a rollout: `spec.rollout`, and the annotations that they may set.

The operator reads annotations and never writes one. A value that says nothing is a `Problem` that
names it and what is allowed; the rollout then stays where it is until it is mended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from chiasm_contract import names
from chiasm_contract.api.rollout import Rollout
from chiasm_contract.conditions import Reason
from chiasm_contract.traffic import Override
from chiasm_contract.weights import ALLOWED, parse_weight

from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.reconcile.rollout.capacity import Pace
from chiasm_operator.render import Target

ACTIONS = ("pause", "resume", "promote", "abort", "retry")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True)
class Action:
    """A rollout-action; `revision` is empty when none was named.

    Another value is another action: what stands behind a second colon says nothing else.
    """

    value: str
    verb: str
    revision: str


@dataclass(frozen=True)
class Asked:
    """Everything asked.

    Attributes:
        target: the revision of the present spec.
        replicas: pods that serve.
        surge, unavailable: pods above and below `replicas` while pods are replaced.
        divided_by: who keeps the share; None: the sidecars.
        weight: parts of 10,000 by annotation; "auto" for the steps; None when nothing is said.
    """

    target: str
    replicas: int
    policy: Rollout = field(default_factory=Rollout)
    request_seconds: int = 600
    surge: int = 1
    unavailable: int = 0
    weight: int | Literal["auto"] | None = None
    action: Action | None = None
    override: Override = field(default_factory=Override)
    faults: tuple[Problem, ...] = ()
    divided_by: Literal["gateway"] | None = None

    @classmethod
    def of(cls, target: Target) -> Asked:
        """What a resource asks."""
        policy, replicas = target.spec.rollout, target.spec.replicas
        surge = _count(policy.max_surge, replicas, up=True)
        unavailable = _count(policy.max_unavailable, replicas, up=False)
        faults: list[Problem] = []
        annotations, gateway = target.resource.annotations, target.spec.gateway
        return cls(
            target=target.revision,
            replicas=replicas,
            policy=policy,
            request_seconds=target.spec.config.request_timeout_seconds,
            surge=surge,
            # As a Deployment does: with neither, nothing could ever be replaced.
            unavailable=unavailable if surge or unavailable else 1,
            weight=_weight(annotations, faults),
            action=_action(annotations, faults),
            override=_override(annotations, faults),
            faults=tuple(faults),
            divided_by="gateway" if gateway and gateway.split == "gateway" else None,
        )

    @property
    def pace(self) -> Pace:
        """How fast pods are replaced."""
        return Pace(self.replicas, self.surge, self.unavailable)

    @property
    def drains(self) -> bool:
        """Whether conversations of an aborted canary may end there."""
        sticky = self.policy.sticky
        return sticky.on_abort == "drain" and sticky.mode == "conversation"

    @property
    def warm_replicas(self) -> int:
        """Pods that a former revision keeps in the rollback window: never more than serve."""
        window = self.policy.rollback_window
        return min(self.replicas, _count(window.replicas, self.replicas, up=True)) if window else 0


def _count(amount: int | str, whole: int, *, up: bool) -> int:
    if isinstance(amount, int):
        return amount
    part = whole * int(amount.removesuffix("%")) / 100
    return ceil(part) if up else int(part)


def _fault(key: str, value: str, allowed: str) -> Problem:
    return Problem(
        Reason.INVALID_ANNOTATION,
        f"Annotation {key} is {value[:64]!r}; allowed {allowed}. The rollout stays where it is "
        "until the annotation is mended or removed.",
    )


def _weight(annotations: Mapping[str, str], faults: list[Problem]) -> int | Literal["auto"] | None:
    key = names.ANNOTATION_CANARY_WEIGHT
    value = annotations.get(key)
    if value is None or value == "auto":
        return "auto" if value else None
    try:
        return parse_weight(value)
    except ValueError:
        faults.append(_fault(key, value, f"are {ALLOWED}, and auto"))
        return None


def _action(annotations: Mapping[str, str], faults: list[Problem]) -> Action | None:
    key = names.ANNOTATION_ROLLOUT_ACTION
    value = annotations.get(key)
    if value is None:
        return None
    verb, revision, *_ = [*value.split(":", 2), ""]
    if verb not in ACTIONS:
        allowed = (
            f"are {', '.join(ACTIONS)}, each also with :REVISION or :REVISION:ANYTHING behind it"
        )
        faults.append(_fault(key, value, allowed))
        return None
    return Action(value, verb, revision)


def _override(annotations: Mapping[str, str], faults: list[Problem]) -> Override:
    given = {
        "header": (names.ANNOTATION_CANARY_BY_HEADER, _TOKEN, "is the name of an HTTP header"),
        "header_value": (
            names.ANNOTATION_CANARY_BY_HEADER_VALUE,
            _VALUE,
            "are up to 128 visible ASCII characters",
        ),
        "cookie": (names.ANNOTATION_CANARY_BY_COOKIE, _TOKEN, "is the name of a cookie"),
    }
    found: dict[str, str] = {}
    for field_name, (key, pattern, allowed) in given.items():
        value = annotations.get(key)
        if value is None:
            continue
        if pattern.fullmatch(value):
            found[field_name] = value
        else:
            faults.append(_fault(key, value, allowed))
    if "header_value" in found and "header" not in found:
        key = names.ANNOTATION_CANARY_BY_HEADER_VALUE
        header = names.ANNOTATION_CANARY_BY_HEADER
        faults.append(_fault(key, found.pop("header_value"), f"only beside {header}"))
    return Override(**found)
