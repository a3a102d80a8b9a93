"""`status`: what the operator saw. Written by the operator only, through the status subresource."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chiasm_contract.api.fields import ApiModel, rule, rules


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
    conditions: list[StatusCondition] = Field(
        default_factory=list,
        description="Observations that tools can wait for.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
