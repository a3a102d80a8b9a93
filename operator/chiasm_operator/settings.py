"""What the operator takes from its environment: CHIASM_OPERATOR_*."""

from __future__ import annotations

from typing import Annotated, Literal

from chiasm_contract.api.addresses import OPTIONAL_BASE_PATTERN
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from chiasm_operator.resource import Images


class Settings(BaseSettings):
    """Each field is CHIASM_OPERATOR_ and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="CHIASM_OPERATOR_", frozen=True)

    worker_image: str = Field(min_length=1, description="Image of the container that computes.")
    sidecar_image: str = Field(min_length=1, description="Image of the container in front of it.")
    sidecar_peers_image: str = Field(
        min_length=1, description="The same with NIXL, for spec.tiers.peers.transport: nixl."
    )
    agent_image: str = Field(
        default="openbao/openbao:2.7.2",
        min_length=1,
        description="A server's own agent, for environments with vault.delivery: agent.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    watch_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Comma-separated; empty watches the whole cluster."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["plain", "json"] = "plain"
    resync_seconds: float = Field(
        default=30.0, ge=1, le=3600, description="A settled resource is looked at this often."
    )
    unsettled_seconds: float = Field(
        default=2.0, ge=0.1, le=60, description="One that is under way is looked at this often."
    )
    stall_seconds: float = Field(
        default=120.0, ge=1, le=3600, description="A pass without an end this long is a stall."
    )
    backoff_max_seconds: float = Field(
        default=30.0,
        ge=1,
        le=600,
        description="The longest pause before a pass that failed is done again; pauses begin at "
        "half a second to one, double, and differ by chance.",
    )
    api_timeout_seconds: float = Field(
        default=30.0, ge=1, le=300, description="An answer of the API server is given up then."
    )
    api_connect_timeout_seconds: float = Field(
        default=5.0, ge=0.1, le=60, description="A connection to the API server is given up then."
    )
    state_timeout_seconds: float = Field(
        default=2.0, ge=0.1, le=30, description="The word of a pod's sidecar is given up then."
    )
    tracing_endpoint: str = Field(
        default="",
        pattern=OPTIONAL_BASE_PATTERN,
        description="A collector of OpenTelemetry's traces, over HTTP; spans of passes go to "
        "v1/traces below it. Empty: no spans.",
    )
    tracing_sample_ratio: float = Field(
        default=1.0, ge=0, le=1, description="Of the passes, how many are traced."
    )
    namespace: str = Field(
        default="default", min_length=1, description="Where the operator's own objects are."
    )
    lease_name: str = Field(
        default="chiasm-operator", min_length=1, description="Whoever holds this Lease there leads."
    )
    lease_seconds: int = Field(
        default=15, ge=3, le=300, description="A leader that is silent this long is replaced."
    )
    identity: str = Field(
        default="",
        description="Name of this process's seat, of which there is never more than one at once; "
        "made up when empty, and then a restarted process waits for its former life's lease.",
    )
    webhook_name: str = Field(
        default="", description="Name of the webhook's Service and Secret; empty: no webhook."
    )
    webhook_configuration: str = Field(
        default="", description="Name of its ValidatingWebhookConfiguration; webhook_name if empty."
    )
    webhook_host: str = "0.0.0.0"  # noqa: S104 - the API server asks on the pod's address
    webhook_port: int = Field(default=9443, ge=0, le=65535)
    health_host: str = "0.0.0.0"  # noqa: S104 - the kubelet asks on the pod's address
    health_port: int = Field(default=8080, ge=0, le=65535)

    @field_validator("watch_namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings, or the end of the process with a sentence for each that is wrong."""
        try:
            return cls()  # type: ignore[call-arg]  # the environment fills them in
        except ValidationError as error:
            lines = [
                f"CHIASM_OPERATOR_{str(item['loc'][0]).upper()}: {item['msg']}."
                for item in error.errors()
            ]
            raise SystemExit("\n".join(["The operator cannot start.", *lines])) from error

    @property
    def images(self) -> Images:
        """The images of a pod."""
        return Images(
            self.worker_image,
            self.sidecar_image,
            self.sidecar_peers_image,
            self.image_pull_policy,
            self.agent_image,
        )
