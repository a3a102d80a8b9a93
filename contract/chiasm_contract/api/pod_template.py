"""`spec.podTemplate`: what a platform adds to each pod, in Kubernetes' own words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from chiasm_contract.api.fields import ApiModel, rule, rules

Word = Annotated[str, StringConstraints(max_length=253)]
Words = dict[str, Annotated[str, StringConstraints(max_length=4096)]]

_NOT_OURS = rules(
    rule(
        "self.all(key, !key.startsWith('chiasm.dev/') && !key.startsWith('app.kubernetes.io/'))",
        "keys under chiasm.dev/ and app.kubernetes.io/ are set by the operator; use another prefix",
    )
)


class Toleration(ApiModel):
    """A taint that a pod tolerates."""

    key: Word | None = Field(default=None, description="The taint's key; absent means every key.")
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="How the value is compared."
    )
    value: Word | None = Field(default=None, description="The taint's value, with Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect; absent means every effect."
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, description="How long a NoExecute taint is tolerated."
    )


class LocalReference(ApiModel):
    """An object in the resource's namespace."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(
        description="Its name."
    )


class PodTemplate(ApiModel):
    """Additions to each pod."""

    labels: Words = Field(
        default_factory=dict,
        max_length=64,
        description="Labels beside the operator's own.",
        json_schema_extra=_NOT_OURS,
    )
    annotations: Words = Field(
        default_factory=dict,
        max_length=64,
        description="Annotations beside the operator's own.",
        json_schema_extra=_NOT_OURS,
    )
    node_selector: Words = Field(
        default_factory=dict, max_length=64, description="Labels that a node must have."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list, max_length=64, description="Taints that pods tolerate."
    )
    affinity: dict[str, Any] = Field(
        default_factory=dict, description="A Kubernetes Affinity; the API server checks it."
    )
    priority_class_name: Word | None = Field(default=None, description="PriorityClass of the pods.")
    runtime_class_name: Word | None = Field(default=None, description="RuntimeClass of the pods.")
    image_pull_secrets: list[LocalReference] = Field(
        default_factory=list, max_length=16, description="Secrets to pull images with."
    )
    service_account_annotations: Words = Field(
        default_factory=dict,
        max_length=64,
        description="Annotations of the pods' ServiceAccount, such as one by which the "
        "kubelet gets credentials for an image registry; pods have no token of it and no network.",
        json_schema_extra=_NOT_OURS,
    )
