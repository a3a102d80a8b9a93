"""What people ask of a rollout: `spec.rollout`, and the annotations that they may set.

The operator reads annotations and never writes one. A value that says nothing is a `Problem` that
names it and what is allowed; the rollout then stays where it is until it is mended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from chiasm_contract import names, rollout_annotations
from chiasm_contract.api.fields import count_of
from chiasm_contract.api.rollout import Rollout
from chiasm_contract.conditions import Reason
from chiasm_contract.rollout_annotations import Action, AnnotationFault
from chiasm_contract.traffic import Override
from chiasm_contract.weights import parse_weight

from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.reconcile.rollout.capacity import Pace
from chiasm_operator.render import Target


@dataclass(frozen=True)
class Asked:
    """Everything asked.

    Attributes:
        target: the revision of the present spec.
        replicas: pods that serve.
        surge, unavailable: pods above and below `replicas` while pods are replaced.
        divided_by: who keeps the share; None: the sidecars.
        weight: parts of 10,000 by annotation; "auto" for the steps; None when nothing is said.
        environment: the name of the environment, and the parts of 10,000 that it gives a canary.
        rotating: pods take up new configuration, for which steps wait.
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
    environment: tuple[str, int] | None = None
    rotating: bool = False

    @classmethod
    def of(cls, target: Target, *, rotating: bool = False) -> Asked:
        """What a resource asks."""
        policy, replicas = target.spec.rollout, target.spec.replicas
        surge = count_of(policy.max_surge, replicas, up=True)
        unavailable = count_of(policy.max_unavailable, replicas, up=False)
        annotations, gateway = target.resource.annotations, target.spec.gateway
        return cls(
            target=target.revision,
            replicas=replicas,
            policy=policy,
            request_seconds=target.spec.config.request_timeout_seconds,
            surge=surge,
            # As a Deployment does: with neither, nothing could ever be replaced.
            unavailable=unavailable if surge or unavailable else 1,
            weight=_weight(annotations),
            action=_action(annotations),
            override=rollout_annotations.override(annotations),
            faults=tuple(map(_problem, rollout_annotations.unreadable(annotations))),
            divided_by="gateway" if gateway and gateway.split == "gateway" else None,
            environment=_environment(target),
            rotating=rotating,
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
        return (
            min(self.replicas, count_of(window.replicas, self.replicas, up=True)) if window else 0
        )


def _problem(fault: AnnotationFault) -> Problem:
    return Problem(
        Reason.INVALID_ANNOTATION,
        f"Annotation {fault.annotation}: {fault.message} The rollout stays where it is until the "
        "annotation is mended or removed.",
    )


def _weight(annotations: Mapping[str, str]) -> int | Literal["auto"] | None:
    if annotations.get(names.ANNOTATION_CANARY_WEIGHT) == rollout_annotations.AUTO:
        return "auto"
    try:
        return rollout_annotations.manual_weight(annotations)
    except ValueError:
        return None  # among the faults


def _environment(target: Target) -> tuple[str, int] | None:
    chosen = target.spec.config.chosen
    if chosen is None or chosen.weight is None:
        return None
    return chosen.name, parse_weight(chosen.weight)


def _action(annotations: Mapping[str, str]) -> Action | None:
    try:
        return rollout_annotations.action(annotations)
    except ValueError:
        return None  # among the faults
