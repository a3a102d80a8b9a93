"""Where a resource's spans go: told to the sidecar, and let through to the collector's port."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chiasm_contract.config import SidecarConfig, TracingConfig
from chiasm_operator.resource import InvalidSpec, parse_spec

from tests.operator.conftest import TargetFactory
from tests.operator.render.rendered import child


def told(make_target: TargetFactory, **tracing: Any) -> SidecarConfig:
    target = make_target(observability={"tracing": tracing} if tracing else {})
    data = child(target, "ConfigMap")["data"]
    assert "tracing" not in json.loads(data["worker.json"])
    return SidecarConfig.model_validate_json(data["sidecar.json"])


def test_the_sidecar_is_told(make_target: TargetFactory) -> None:
    assert told(make_target).tracing is None
    found = told(make_target, endpoint="http://collector:4318", sampleRatio=0.5).tracing
    assert found == TracingConfig(endpoint="http://collector:4318", sample_ratio=0.5)


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://otel-collector.monitoring:4318", 4318),
        ("https://otel.example.com", 443),
        ("http://10.0.0.9/otlp", 80),
        ("http://[fd00::9]:4318", 4318),
        (None, None),
    ],
)
def test_pods_reach_the_collector(
    endpoint: str | None, port: int | None, make_target: TargetFactory
) -> None:
    tracing = {"tracing": {"endpoint": endpoint}} if endpoint else {}
    policy = child(make_target(observability=tracing, tiers=None), "NetworkPolicy")["spec"]
    reached = {each["port"] for each in policy["egress"][0]["ports"]}
    assert reached == {53} | ({port} if port else set())


@pytest.mark.parametrize(
    "endpoint",
    [
        "collector:4318",
        "ftp://collector",
        "http://user:word@collector",
        "http://a?b=c",
        "http://",
        "http://collector:0",
        "http://collector:65536",
        "http://collector:99999",
        "http://[:::::]:4318",
    ],
)
def test_what_is_no_collector_is_refused_by_its_field(endpoint: str) -> None:
    spec = {
        "model": {"source": {"builtin": "demo"}},
        "observability": {"tracing": {"endpoint": endpoint}},
    }
    with pytest.raises(InvalidSpec, match=r"spec\.observability\.tracing\.endpoint"):
        parse_spec(spec)


@pytest.mark.parametrize("ratio", [-0.1, 1.1])
def test_a_share_is_from_0_to_1(ratio: float) -> None:
    tracing = {"endpoint": "http://collector", "sampleRatio": ratio}
    spec = {"model": {"source": {"builtin": "demo"}}, "observability": {"tracing": tracing}}
    with pytest.raises(InvalidSpec, match=r"spec\.observability\.tracing\.sampleRatio"):
        parse_spec(spec)
