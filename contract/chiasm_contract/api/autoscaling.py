"""`spec.autoscaling`: who decides how many pods there are, in the words of that decider.

The autoscaler writes `spec.replicas` through the resource's own scale subresource; the operator
makes the autoscaler and then only follows. A Deployment is never the target: there is one for each
revision, and none of them is the whole.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from chiasm_contract.api.fields import ApiModel, DnsName, Quantity, rule, rules

_POSITIVE = rules(
    rule("quantity(string(self)).isGreaterThan(quantity('0'))", "must be above 0"),
)


class PodMetric(ApiModel):
    """A metric of each pod that a custom-metrics adapter offers to Kubernetes."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] = Field(
        description="Its name as the adapter offers it, such as vllm_num_requests_waiting."
    )
    average_value: Quantity = Field(
        description="The mean over all pods that is aimed at.", json_schema_extra=_POSITIVE
    )


class Hpa(ApiModel):
    """A HorizontalPodAutoscaler: Kubernetes' own."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.cpuUtilizationPercent) || size(self.podMetrics) > 0",
                "set cpuUtilizationPercent or at least one of podMetrics",
            )
        )
    )

    cpu_utilization_percent: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="The worker's processor time that is aimed at, as a share of "
        "resources.requests.cpu; needs metrics-server. It says little of a model on a GPU.",
    )
    pod_metrics: list[PodMetric] = Field(
        default_factory=list,
        max_length=8,
        description="Metrics of the pods that are aimed at; the one that asks for most pods wins.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class TriggerAuthentication(ApiModel):
    """How KEDA shows itself to Prometheus."""

    name: DnsName = Field(description="A TriggerAuthentication in the resource's namespace.")
    mode: Literal["bearer", "basic", "tls"] = Field(
        default="bearer", description="What it holds: a token, a password or a certificate."
    )


class PrometheusTrigger(ApiModel):
    """A number that Prometheus knows, such as requests that wait."""

    server_address: Annotated[
        str, StringConstraints(max_length=512, pattern=r"^https?://[^\s]+$")
    ] = Field(description="Address of Prometheus, such as http://prometheus.monitoring.svc:9090.")
    query: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="PromQL that yields one number: the sum over all pods."
    )
    threshold: Quantity = Field(
        description="What one pod is meant to carry of it.", json_schema_extra=_POSITIVE
    )
    activation_threshold: Quantity | None = Field(
        default=None, description="Above this number the first pod comes up; 0 when absent."
    )
    authentication: TriggerAuthentication | None = None


class Keda(ApiModel):
    """A ScaledObject: KEDA must be in the cluster."""

    polling_seconds: int = Field(
        default=30, ge=1, le=3600, description="How often KEDA looks while there is no pod."
    )
    cooldown_seconds: int = Field(
        default=300,
        ge=0,
        le=86400,
        description="How long nothing must ask for a pod before the last one goes.",
    )
    prometheus: Annotated[list[PrometheusTrigger], Field(min_length=1, max_length=8)] = Field(
        description="What is looked at; the one that asks for most pods wins."
    )


class Autoscaling(ApiModel):
    """An autoscaler that writes `replicas`: leave `replicas` out of the manifest."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.hpa) != has(self.keda)", "set exactly one of hpa and keda"),
            rule(
                "self.minReplicas <= self.maxReplicas",
                "must not be above maxReplicas",
                field=".minReplicas",
            ),
            rule(
                "self.minReplicas >= 1 || has(self.keda)",
                "must be at least 1 with hpa, which cannot start from no pod; keda can",
                field=".minReplicas",
            ),
        )
    )

    min_replicas: int = Field(default=1, ge=0, le=1000, description="Pods at least.")
    max_replicas: int = Field(ge=1, le=1000, description="Pods at most.")
    scale_down_stabilization_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="Fewer pods only after fewer were enough for this long.",
    )
    hpa: Hpa | None = None
    keda: Keda | None = None
