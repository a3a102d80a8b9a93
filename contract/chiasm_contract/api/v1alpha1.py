"""`chiasm.dev/v1alpha1 MultimodalInference`: the one list of what a user may ask for.

`tools/generate.py` makes the CRD, its copy in the chart and the reference from these models.
Descriptions are sentences a user reads; sizes are Kubernetes quantities; everything in `spec` has
an effect on what is rendered (a test changes each leaf and looks). Fields that compare with each
other are checked by CEL in the API server, so that validation works with the operator dead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from chiasm_contract.api import identity_fields
from chiasm_contract.api.autoscaling import Autoscaling
from chiasm_contract.api.cost import Cost
from chiasm_contract.api.engine import Engine
from chiasm_contract.api.environments import (
    MAX_ENVIRONMENTS,
    Environment,
    EnvironmentName,
)
from chiasm_contract.api.fields import (
    ApiModel,
    DnsName,
    Quantity,
    at_least,
    rule,
    rules,
)
from chiasm_contract.api.gateway import Gateway
from chiasm_contract.api.modalities import Modalities
from chiasm_contract.api.observability import Observability
from chiasm_contract.api.pod_template import PodTemplate
from chiasm_contract.api.rollout import Rollout
from chiasm_contract.api.status import Status
from chiasm_contract.api.tenants import Tenants
from chiasm_contract.api.tiers import Tiers
from chiasm_contract.api.vision import Vision
from chiasm_contract.builtin_models import builtin_models
from chiasm_contract.messages import MEDIA_NAMES
from chiasm_contract.tiers import PEER_LANDING_BYTES

MAX_NAME_LENGTH = 48

RelativePath = Annotated[str, StringConstraints(max_length=512)]
_RELATIVE = rule(
    "!self.startsWith('/') && !self.split('/').exists(part, part == '..')",
    "must be relative and must not contain '..', like qwen/vl-3b",
)


class ClaimSource(ApiModel):
    """A model folder on a PersistentVolumeClaim in the resource's namespace; mounted read-only."""

    claim_name: DnsName = Field(description="Name of the claim.")
    path: RelativePath = Field(
        default="",
        description="Folder inside the claim that holds config.json; empty is its root.",
        json_schema_extra=rules(_RELATIVE),
    )


class ImageSource(ApiModel):
    """A model folder inside an OCI image, mounted as an image volume."""

    reference: Annotated[
        str, StringConstraints(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][^\s]*$")
    ] = Field(description="Image reference; a digest makes it immutable.")
    path: RelativePath = Field(
        default="",
        description="Folder inside the image that holds config.json; empty is its root.",
        json_schema_extra=rules(_RELATIVE),
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the node pulls the image."
    )


class ModelSource(ApiModel):
    """Where the weights come from: exactly one of builtin, path and image."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(has(self.builtin) ? 1 : 0) + (has(self.path) ? 1 : 0) "
                "+ (has(self.image) ? 1 : 0) == 1",
                "set exactly one of builtin, path and image",
            )
        )
    )

    builtin: str | None = Field(
        default=None,
        description="A model inside the worker image.",
        json_schema_extra={"enum": [*sorted(builtin_models())]},
    )
    path: ClaimSource | None = None
    image: ImageSource | None = None


class Model(ApiModel):
    """The model that is served."""

    source: ModelSource
    name: (
        Annotated[
            str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][\w./:-]*$")
        ]
        | None
    ) = Field(
        default=None,
        description="Name in the API's `model` field; the resource's name when absent.",
    )
    modalities: Modalities = Modalities()
    vision: Vision = Vision()
    expected_identity: dict[str, Annotated[str, StringConstraints(max_length=200)]] = Field(
        default_factory=dict,
        max_length=32,
        description="Identity field -> value that every worker must report, such as "
        "compute.weights.language. A pod that reports another never becomes ready.",
        json_schema_extra=rules(
            rule(
                f"self.all(name, name in {list(identity_fields.NAMES)})",
                f"allowed fields are {', '.join(identity_fields.NAMES)}",
            ),
            *(
                rule(
                    f"{group}.all(name, !(name in self) || self[name].matches(r'{pattern}'))",
                    f"{', '.join(group)} must match {pattern}",
                )
                for pattern, group in identity_fields.pattern_groups().items()
            ),
        ),
    )


_KEYS = ["cpu", "memory", "ephemeral-storage"]
_AMOUNT_RULES = rules(
    rule(f"self.all(key, key in {_KEYS})", f"allowed keys are {', '.join(_KEYS)}")
)
_REQUESTS_BELOW_LIMITS = rule(
    "self.requests.all(key, !(key in self.limits) || "
    "quantity(string(self.requests[key])).compareTo(quantity(string(self.limits[key]))) <= 0)",
    "must not be above limits",
    field=".requests",
)
Amounts = Annotated[dict[str, Quantity], Field(max_length=3, json_schema_extra=_AMOUNT_RULES)]


class Device(ApiModel):
    """What the model runs on: the CPU, or one GPU per replica."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.type != 'cpu' || !has(self.resourceName)",
                "is allowed only when type is nvidia or amd",
                field=".resourceName",
            ),
            rule(
                "!has(self.claimTemplateName) || (self.type != 'cpu' && !has(self.resourceName))",
                "is allowed only when type is nvidia or amd and resourceName is absent: the claim "
                "brings the GPU",
                field=".claimTemplateName",
            ),
        )
    )

    type: Literal["cpu", "nvidia", "amd"] = Field(
        default="cpu",
        description="nvidia asks for one nvidia.com/gpu, amd for one amd.com/gpu. The worker image "
        "that comes with Chiasm runs on cpu and nvidia; amd needs one of your own with PyTorch for "
        "ROCm, named in the chart's images.worker.",
    )
    resource_name: (
        Annotated[str, StringConstraints(max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")]
        | None
    ) = Field(
        default=None, description="Another resource to ask for, such as nvidia.com/mig-2g.20gb."
    )
    claim_template_name: DnsName | None = Field(
        default=None,
        description="A ResourceClaimTemplate (Dynamic Resource Allocation) that brings the "
        "replica's one GPU, instead of a counted resource.",
    )


class SidecarResources(ApiModel):
    """Requests and limits of the sidecar container."""

    model_config = ConfigDict(json_schema_extra=rules(_REQUESTS_BELOW_LIMITS))

    requests: Amounts = Field(
        default={"cpu": "100m", "memory": "128Mi"}, description="What the scheduler reserves."
    )
    limits: Amounts = Field(default={}, description="What the container may use at most.")


class Resources(ApiModel):
    """Device, requests and limits of each replica."""

    model_config = ConfigDict(json_schema_extra=rules(_REQUESTS_BELOW_LIMITS))

    device: Device = Device()
    requests: Amounts = Field(
        default={"cpu": "250m", "memory": "1Gi"},
        description="What the scheduler reserves for the worker.",
    )
    limits: Amounts = Field(default={}, description="What the worker may use at most.")
    sidecar: SidecarResources = SidecarResources()


class Media(ApiModel):
    """Limits on a whole request."""

    max_body_bytes: Quantity = Field(
        default="128Mi",
        description="Size of a request's body; a larger one is answered 413.",
        json_schema_extra=at_least("1Ki"),
    )


class Config(ApiModel):
    """Settings of the processes in a pod, and where configuration and secrets come from."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.environment) == (has(self.environments) && self.environments.size() > 0)",
                "must be set exactly when there are environments",
                field=".environment",
            ),
            rule(
                "!has(self.environment) || !has(self.environments) "
                "|| self.environments.exists(e, e.name == self.environment)",
                "must be the name of one of environments",
                field=".environment",
            ),
        )
    )

    environment: EnvironmentName | None = Field(
        default=None, description="The environment that this spec is in; one of environments."
    )
    environments: list[Environment] = Field(
        default_factory=list,
        max_length=MAX_ENVIRONMENTS,
        description="Where a release may be: its images, its share, its sources.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is logged."
    )
    request_timeout_seconds: int = Field(
        default=600, ge=1, le=86400, description="A request is given up after this long."
    )

    @property
    def chosen(self) -> Environment | None:
        """The environment that the spec is in."""
        return next((each for each in self.environments if each.name == self.environment), None)


_FITS_IN_MEMORY = (
    rule(
        "!('memory' in self.resources.limits) || "
        "quantity(string(self.resources.limits['memory']))"
        ".isGreaterThan(quantity(string(self.engine.maxMediaBytes)))",
        "must be above engine.maxMediaBytes: prepared media lie in this memory",
        field=".resources.limits",
    ),
    rule(
        "self.resources.device.type != 'cpu' || !('memory' in self.resources.limits) || "
        "quantity(string(self.resources.limits['memory']))"
        ".isGreaterThan(quantity(string(self.engine.kvCacheBytes))"
        ".add(quantity(string(self.engine.maxMediaBytes))))",
        "must be above engine.kvCacheBytes and engine.maxMediaBytes together: on a CPU the cache "
        "lies in this memory too",
        field=".resources.limits",
    ),
)
_TIER_FITS_IN_MEMORY = rule(
    "!has(self.tiers) || !has(self.tiers.host) || "
    "!('memory' in self.resources.sidecar.limits) || "
    "quantity(string(self.resources.sidecar.limits['memory']))"
    ".isGreaterThan(quantity(string(self.tiers.host.maxBytes))"
    ".add(quantity(string(self.tiers.stagingBytes)))"
    f".add(quantity(has(self.tiers.peers) ? '{PEER_LANDING_BYTES}' : '0')))",
    "must be above tiers.host.maxBytes and tiers.stagingBytes together, and with tiers.peers "
    f"{PEER_LANDING_BYTES // 2**20} Mi more: all of it lies in this memory",
    field=".resources.sidecar.limits",
)
_CPU_SHARE_OF_A_REQUEST = rule(
    "!has(self.autoscaling) || !has(self.autoscaling.hpa) "
    "|| !has(self.autoscaling.hpa.cpuUtilizationPercent) || 'cpu' in self.resources.requests",
    "must have cpu: autoscaling.hpa.cpuUtilizationPercent is a share of it",
    field=".resources.requests",
)
_TRITON_CAN_COMPUTE = rule(
    "self.engine.kernels != 'triton' || "
    "(self.resources.device.type != 'cpu' && self.engine.dtype != 'float32')",
    "is triton only where resources.device.type is nvidia or amd and engine.dtype is bfloat16 or "
    "float16",
    field=".engine.kernels",
)
_FILES_FIT_IN_BODY = tuple(
    rule(
        f"self.model.modalities.{kind}.maxPerPrompt == 0 || "
        "quantity(string(self.media.maxBodyBytes))"
        f".compareTo(quantity(string(self.model.modalities.{kind}.maxBytes))) >= 0",
        f"must be at least model.modalities.{kind}.maxBytes",
        field=".media.maxBodyBytes",
    )
    for kind in MEDIA_NAMES
)


class Spec(ApiModel):
    """What is asked for."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *_FITS_IN_MEMORY,
            _TIER_FITS_IN_MEMORY,
            _CPU_SHARE_OF_A_REQUEST,
            _TRITON_CAN_COMPUTE,
            *_FILES_FIT_IN_BODY,
        )
    )

    model: Model
    engine: Engine = Engine()
    tiers: Tiers | None = None
    resources: Resources = Resources()
    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Pods that serve the model. Where an autoscaler is at work this is its field: "
        "leave it out of the manifest.",
    )
    autoscaling: Autoscaling | None = None
    media: Media = Media()
    tenants: Tenants | None = None
    gateway: Gateway | None = None
    rollout: Rollout = Rollout()
    config: Config = Config()
    observability: Observability = Observability()
    cost: Cost | None = None
    pod_template: PodTemplate = PodTemplate()


class MultimodalInference(ApiModel):
    """A vision-language model served by pods behind an OpenAI-style HTTP API."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"self.metadata.name.size() <= {MAX_NAME_LENGTH} "
                "&& self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                f"metadata.name must be a DNS label of at most {MAX_NAME_LENGTH} characters that "
                "starts with a letter, for the Service carries it too",
            )
        )
    )

    api_version: Literal["chiasm.dev/v1alpha1"] = "chiasm.dev/v1alpha1"
    kind: Literal["MultimodalInference"] = "MultimodalInference"
    metadata: dict[str, Any]
    spec: Spec
    status: Status | None = None
