"""`status`: what the operator saw. Written by the operator only, through the status subresource."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from chiasm_contract import instants
from chiasm_contract.api.fields import ApiModel, rule, rules
from chiasm_contract.weights import parse_weight


class StatusCondition(ApiModel):
    """One observation that tools can wait for."""

    type: str = Field(description="What it is about, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="Why, in one CamelCase word.")
    message: str = Field(description="Why, in a sentence for a person.")
    last_transition_time: str = Field(
        description="When `status` last changed.", json_schema_extra={"format": "date-time"}
    )
    observed_generation: int = Field(
        default=0, description="The metadata.generation that was looked at."
    )


class StatusIdentity(ApiModel):
    """The identity that the first pod of the revision reported; all others must equal it."""

    revision: str = Field(description="The revision that reported it.")
    compute_fingerprint: str = Field(description="What a cached vector means, as a digest.")
    repr_fingerprint: str = Field(description="How a cached block is laid out, as a digest.")
    fields: dict[str, str] = Field(
        default_factory=dict, description="The fields behind both digests."
    )


RolloutState = Literal[
    "Idle", "Preparing", "Shifting", "Verifying", "Paused", "Promoting", "Draining", "Aborting",
    "Aborted",
]  # fmt: skip


class LastAction(ApiModel):
    """The rollout-action that was seen last; it is not done twice."""

    value: str = Field(description="The annotation's value.")
    revision: str = Field(description="The revision that it was read for.")


def _instant(text: str) -> str:
    instants.to_seconds(text)
    return text


def _weight(text: str) -> str:
    parse_weight(text)
    return text


# Checked, for anybody may edit what is read again: what cannot be read must not be half believed.
Instant = Annotated[str, AfterValidator(_instant), Field(json_schema_extra={"format": "date-time"})]


class LeavingRevision(ApiModel):
    """A revision without traffic whose pods still stand."""

    revision: str = Field(description="Which.")
    until: Instant = Field(description="Its pods go at this time at the latest.")
    why: Literal["drain", "warm", "aborted"] = Field(
        description="drain: until its last answer ended; warm: kept for a way back."
    )


class StatusRollout(ApiModel):
    """Where a rollout is. A copy is in the ConfigMap of the traffic plan, written with the plan."""

    state: RolloutState = Field(default="Idle", description="What is being done.")
    stable_revision: str = Field(default="", description="The revision that clients reach.")
    canary_revision: str = Field(
        default="", description="The revision that is to take its place; empty when there is none."
    )
    weight: str = Field(default="0", description="Per cent of new conversations for the canary.")
    epoch: int = Field(default=0, description="Number of the traffic plan.")
    current_step: int = Field(
        default=0, ge=0, description="Steps of spec.rollout.steps that are done."
    )
    step_began: Instant | None = Field(
        default=None, description="Since when the present step runs."
    )
    step_deadline: Instant | None = Field(
        default=None, description="When the present step or look ends."
    )
    next_look: Instant | None = Field(
        default=None, description="When both revisions are compared next."
    )
    failed_looks: int = Field(
        default=0, description="Looks in a row that found a fault, in this step."
    )
    inconclusive: bool = Field(
        default=False, description="The comparison had too little to compare; a person decides."
    )
    rolling: bool = Field(
        default=True, description="Pods are replaced as they become ready, without steps."
    )
    paused: bool = Field(default=False, description="Held by rollout-action: pause.")
    manual_weight: Annotated[str, AfterValidator(_weight)] | None = Field(
        default=None,
        description="The weight that the annotation, or the environment, gave for this canary.",
    )
    weight_by: Literal["annotation", "environment"] | None = Field(
        default=None, description="Which of both gave it."
    )
    held_since: Instant | None = Field(
        default=None,
        description="Since when the steps wait for pods that take up new configuration.",
    )
    manual_latched: bool = Field(
        default=False, description="The annotation is gone; its weight stays for this canary."
    )
    promoting: bool = Field(default=False, description="The remaining steps are passed over.")
    aborted_revision: str | None = Field(
        default=None, description="The revision that was aborted; it stays without traffic."
    )
    abort_message: str | None = Field(default=None, description="Why it was aborted.")
    last_action: LastAction | None = None
    leaving: list[LeavingRevision] = Field(
        default_factory=list, description="Revisions without traffic whose pods still stand."
    )
    message: str = Field(default="", description="What is waited for, in a sentence.")


class StatusSource(ApiModel):
    """One source of configuration, over all pods."""

    name: str = Field(description="Its name in the environment.")
    version: str | None = Field(
        default=None, description="What is in use, by an id that never tells the value."
    )
    pods: str = Field(default="0/0", description="Pods that use it, of those that should.")
    rotating_to: str | None = Field(default=None, description="What pods are taking up.")
    prover: str | None = Field(default=None, description="The pod that tries it first.")
    since: Instant | None = Field(default=None, description="Since when.")
    lease_ends: Instant | None = Field(
        default=None, description="When the first lease of a pod ends, whatever is done."
    )


class StatusConfig(ApiModel):
    """What pods use of their environment's sources."""

    environment: str = Field(description="The environment of the present revision.")
    stable_environment: str | None = Field(
        default=None, description="That of the revision that clients reach, where it is another."
    )
    asked: str | None = Field(
        default=None, description="The annotation reload-config that every pod has followed."
    )
    sources: list[StatusSource] = Field(
        default_factory=list,
        description="Each source.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class Status(ApiModel):
    """What the operator saw last."""

    observed_generation: int | None = Field(
        default=None, description="The metadata.generation that was looked at."
    )
    phase: Literal["Healthy", "Progressing", "Paused", "Degraded"] | None = Field(
        default=None, description="The resource in one word."
    )
    url: str | None = Field(default=None, description="Where the API answers inside the cluster.")
    model: str | None = Field(default=None, description="Name in the API's `model` field.")
    revision: str | None = Field(
        default=None, description="Name of what is being served; changes when pods must change."
    )
    replicas: int | None = Field(default=None, description="Pods that exist.")
    updated_replicas: int | None = Field(
        default=None, description="Pods that exist of the current revision."
    )
    ready_replicas: int | None = Field(
        default=None, description="Pods of the current revision that take requests."
    )
    ready: str | None = Field(default=None, description="Ready pods of desired ones, such as 1/2.")
    selector: str | None = Field(
        default=None, description="Label selector of the pods, for autoscalers."
    )
    operator_epoch: int | None = Field(
        default=None,
        description="Number of the operator's leader that wrote this; it only grows.",
        json_schema_extra=rules(
            rule(
                "self >= oldSelf",
                "must not fall: a later leader of the operator has written this status",
            )
        ),
    )
    identity: StatusIdentity | None = None
    rollout: StatusRollout | None = None
    config: StatusConfig | None = None
    conditions: list[StatusCondition] = Field(
        default_factory=list,
        description="Observations that tools can wait for.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
