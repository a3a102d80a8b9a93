"""Pods are locked down, read their own Secrets only, and end without cutting an answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chiasm_contract.config import SidecarConfig, WorkerConfig
from chiasm_operator import render
from chiasm_operator.render import Target

from tests.operator.render.rendered import child, pod_spec


@pytest.mark.parametrize(
    "name", ["minimal", "complete", "claim", "autoscaled", "sharing", "environments"]
)
def test_configs_are_what_the_parts_read(name: str, make_target: Callable[..., Target]) -> None:
    data = child(make_target(name), "ConfigMap")["data"]
    worker = WorkerConfig.model_validate_json(data["worker.json"])
    sidecar = SidecarConfig.model_validate_json(data["sidecar.json"])
    assert worker.model_id == sidecar.model_id
    assert worker.images == sidecar.images
    assert worker.socket_path == sidecar.worker_socket


@pytest.mark.parametrize(
    "name", ["minimal", "complete", "claim", "autoscaled", "sharing", "environments"]
)
def test_pods_are_locked_down(name: str, make_target: Callable[..., Target]) -> None:
    spec = pod_spec(make_target(name))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_sidecar_is_native_and_the_worker_has_no_port(
    make_target: Callable[..., Target],
) -> None:
    spec = pod_spec(make_target())
    (sidecar,) = spec["initContainers"]
    (worker,) = spec["containers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    assert "ports" not in worker
    assert "readinessProbe" not in worker


def test_the_log_tells_why_a_container_ended(make_target: Callable[..., Target]) -> None:
    spec = pod_spec(make_target())
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_only_the_sidecar_sees_the_tenants_secrets(make_target: Callable[..., Target]) -> None:
    target = make_target("complete")
    spec = pod_spec(target)
    (sidecar,), (worker,) = spec["initContainers"], spec["containers"]
    secret = {volume["name"] for volume in spec["volumes"] if "secret" in volume}
    assert secret == {"tenant-keys", "server-key"}
    mounted = {mount["name"]: mount for mount in sidecar["volumeMounts"]}
    assert secret <= mounted.keys()
    assert not secret & {mount["name"] for mount in worker["volumeMounts"]}
    data = child(target, "ConfigMap")["data"]
    config = SidecarConfig.model_validate_json(data["sidecar.json"])
    assert config.tenants is not None
    assert str(config.tenants.keys_path) == mounted["tenant-keys"]["mountPath"]
    assert str(config.tenants.server_key_path.parent) == mounted["server-key"]["mountPath"]
    # What is mounted as a subPath stays as it is when the Secret changes.
    assert not [mount for mount in sidecar["volumeMounts"] if "subPath" in mount]
    assert "tenant" not in data["worker.json"]


def test_without_tenants_there_are_no_secrets(make_target: Callable[..., Target]) -> None:
    target = make_target()
    assert not [volume for volume in pod_spec(target)["volumes"] if "secret" in volume]
    sidecar = SidecarConfig.model_validate_json(child(target, "ConfigMap")["data"]["sidecar.json"])
    assert sidecar.tenants is None


def test_a_gpu_is_asked_for_by_its_resource(make_target: Callable[..., Target]) -> None:
    def limits(device: dict[str, str]) -> dict[str, str]:
        target = make_target(resources={"device": device})
        found: dict[str, str] = pod_spec(target)["containers"][0]["resources"]["limits"]
        return found

    assert limits({"type": "cpu"}) == {}
    assert limits({"type": "nvidia"}) == {"nvidia.com/gpu": "1"}
    assert limits({"type": "amd"}) == {"amd.com/gpu": "1"}
    assert limits({"type": "nvidia", "resourceName": "nvidia.com/mig-1g"}) == {
        "nvidia.com/mig-1g": "1"
    }


def test_both_containers_hear_at_once_that_the_pod_goes(
    make_target: Callable[..., Target],
) -> None:
    spec = pod_spec(make_target(rollout={"drainSeconds": 7}))
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}
    drain = {"preStop": {"exec": {"command": ["python3", "-m", "chiasm_sidecar.drain"]}}}
    assert spec["initContainers"][0]["lifecycle"] == drain


def test_no_drain_means_no_pause(make_target: Callable[..., Target]) -> None:
    assert "lifecycle" not in pod_spec(make_target(rollout={"drainSeconds": 0}))["containers"][0]


def test_answers_may_run_for_what_the_drain_leaves_of_the_grace(
    make_target: Callable[..., Target],
) -> None:
    def seconds(**rollout: int) -> float:
        data = child(make_target(rollout=rollout), "ConfigMap")["data"]
        return WorkerConfig.model_validate_json(data["worker.json"]).shutdown_seconds

    assert seconds(terminationGracePeriodSeconds=1000, drainSeconds=20) == 975
    assert seconds(terminationGracePeriodSeconds=10, drainSeconds=0) == 5


def test_by_default_a_pod_that_goes_cuts_no_answer(make_target: Callable[..., Target]) -> None:
    target = make_target()
    data = child(target, "ConfigMap")["data"]
    config = WorkerConfig.model_validate_json(data["worker.json"])
    assert config.shutdown_seconds >= target.spec.config.request_timeout_seconds


def test_a_single_pod_has_no_disruption_budget(make_target: Callable[..., Target]) -> None:
    kinds = {item["kind"] for item in render.children(make_target(replicas=1))}
    assert "PodDisruptionBudget" not in kinds
    assert len(kinds) == 6
