"""`spec.podTemplate`: what a platform adds to each pod, in Kubernetes' own words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from chiasm_contract.api.fields import ONE_ORIGIN, ApiModel, SourceName, rule, rules

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


class ImagePullSecret(ApiModel):
    """Credentials with which nodes pull images: a Secret, or a source that becomes one."""

    model_config = ConfigDict(json_schema_extra=rules(ONE_ORIGIN))

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = Field(
        default=None, description="Name of the Secret."
    )
    source: SourceName | None = Field(
        default=None,
        description="Name of a source of the environment whose entry .dockerconfigjson they are: a "
        "secret, or a kv secret that delivery external-secrets or vso makes a Secret of.",
    )


class TopologySpread(ApiModel):
    """How evenly the pods of one revision lie over the values of a node label."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.minDomains) || (has(self.whenUnsatisfiable) "
                "&& self.whenUnsatisfiable == 'DoNotSchedule')",
                "is allowed only when whenUnsatisfiable is DoNotSchedule",
                field=".minDomains",
            )
        )
    )

    topology_key: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(
        description="The node label, such as topology.kubernetes.io/zone."
    )
    max_skew: int = Field(
        default=1, ge=1, description="By how many pods two values of the label may differ."
    )
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = Field(
        default="ScheduleAnyway", description="Whether a pod that breaks this is left waiting."
    )
    min_domains: int | None = Field(
        default=None, ge=1, description="Fewer values than this count as an empty one."
    )
    node_affinity_policy: Literal["Honor", "Ignore"] = Field(
        default="Honor", description="Whether only nodes that the pod may use are counted."
    )
    node_taints_policy: Literal["Honor", "Ignore"] = Field(
        default="Honor",
        description="Whether nodes with a taint that is not tolerated are left out.",
    )


# What decides how the worker finds its files, or how it computes: an answer to the same request,
# and a cached vector under the same identity, must not depend on it.
_OUR_VARIABLES = ("HOME", "PATH", "NVIDIA_TF32_OVERRIDE", "DISABLE_ADDMM_CUDA_LT")
_OUR_PREFIXES = (
    "CHIASM_", "PYTHON", "LD_", "TORCH", "PYTORCH_", "ATEN_", "TRITON_", "CUBLAS", "CUDNN",
    "MIOPEN_", "ROCBLAS_", "HIPBLASLT_", "MKL_", "ONEDNN_", "DNNL_", "OMP_", "HF_",
    "TRANSFORMERS_",
)  # fmt: skip


class Variable(ApiModel):
    """An environment variable of the worker."""

    name: Annotated[
        str, StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    ] = Field(
        description="Its name.",
        json_schema_extra=rules(
            rule(
                f"!(self in {list(_OUR_VARIABLES)}) "
                f"&& !{list(_OUR_PREFIXES)}.exists(prefix, self.startsWith(prefix))",
                f"{', '.join(_OUR_VARIABLES)} and names that start with "
                f"{', '.join(_OUR_PREFIXES)} decide how the worker computes and are left to it; "
                "what may be chosen is in spec.engine and spec.config",
            )
        ),
    )
    value: Annotated[str, StringConstraints(max_length=4096)] = Field(
        default="", description="Its value, as it is; no secret: anyone who sees the pod reads it."
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
    topology_spread_constraints: list[TopologySpread] = Field(
        default_factory=list,
        max_length=16,
        description="How pods spread over nodes and zones, each revision by itself; without any "
        "they prefer different nodes.",
    )
    scheduler_name: Word | None = Field(
        default=None, description="Scheduler of the pods; Kubernetes' own when absent."
    )
    priority_class_name: Word | None = Field(default=None, description="PriorityClass of the pods.")
    runtime_class_name: Word | None = Field(default=None, description="RuntimeClass of the pods.")
    supplemental_groups: list[Annotated[int, Field(ge=1, le=2147483647)]] = Field(
        default_factory=list,
        max_length=16,
        description="Groups beside the pods' own, such as those that own a GPU's device files or "
        "the files of a model.",
    )
    env: list[Variable] = Field(
        default_factory=list,
        max_length=64,
        description="Environment variables of the worker, such as NVIDIA_DRIVER_CAPABILITIES.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    image_pull_secrets: list[ImagePullSecret] = Field(
        default_factory=list, max_length=16, description="Credentials to pull images with."
    )
    service_account_annotations: Words = Field(
        default_factory=dict,
        max_length=64,
        description="Annotations of the pods' ServiceAccount, such as one by which the "
        "kubelet gets credentials for an image registry; pods have no token of it and no network.",
        json_schema_extra=_NOT_OURS,
    )
