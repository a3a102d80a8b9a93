"""`spec.observability`: what a pod shows of itself."""

from __future__ import annotations

from pydantic import Field

from chiasm_contract.api.addresses import BaseUrl
from chiasm_contract.api.fields import ApiModel


class Tracing(ApiModel):
    """Traces of requests, sent to a collector by OpenTelemetry's protocol over HTTP."""

    endpoint: BaseUrl = Field(
        description="The collector's URL as pods reach it, like http://otel-collector.monitoring"
        ":4318; spans go to v1/traces below it."
    )
    sample_ratio: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="The share of requests that is traced, of those that come without a "
        "traceparent; one that has a traceparent is traced when that says so.",
    )


class Observability(ApiModel):
    """What a pod shows of itself."""

    access_log: bool = Field(default=False, description="Log one line per request.")
    scrape: bool = Field(
        default=True, description="Annotate pods with prometheus.io/scrape, port and path."
    )
    tracing: Tracing | None = None
