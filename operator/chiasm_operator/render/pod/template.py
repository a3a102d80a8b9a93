"""The pod template: the sidecar as a native sidecar, then the worker.

An init container with `restartPolicy: Always` is up before the worker and down after it, so a
request never finds the worker's socket without the sidecar in front of it. The worker has no
port: its probes run inside the container, over the Unix socket. Both preStop hooks run at once
when a pod is deleted: while the worker's holds back its SIGTERM, the sidecar, which hears of that
only after the worker's end, is already sending clients elsewhere.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names, quantity

from chiasm_operator.render import retired
from chiasm_operator.render.configuration import agent, injector
from chiasm_operator.render.configuration import pod as configured
from chiasm_operator.render.pod import placement, tenants
from chiasm_operator.render.pod.tiers import tier_mounts, tier_volumes
from chiasm_operator.render.target import Target

MODEL_VOLUME = "model"
_RUN, _TMP, _CONFIG, _TRAFFIC = "run", "tmp", "config", "traffic"
_RUN_BYTES = 64 * 2**20
# A model may take this long to load before its worker counts as stuck.
_STARTUP_SECONDS = 1800
_PROBE_WORKER = ["python3", "-m", "chiasm_contract.probe", names.WORKER_SOCKET, "/health"]
_DRAIN_SIDECAR = ["python3", "-m", "chiasm_sidecar.drain"]


def _volumes(target: Target) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": _RUN, "emptyDir": _run_volume(target)},
        {"name": _TMP, "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": _CONFIG, "configMap": {"name": target.revision_name(target.revision)}},
        _traffic_volume(target),
    ]
    source = target.spec.model.source
    if source.path:
        claim = {"claimName": source.path.claim_name, "readOnly": True}
        volumes.append({"name": MODEL_VOLUME, "persistentVolumeClaim": claim})
    if source.image:
        image = {"reference": source.image.reference, "pullPolicy": source.image.pull_policy}
        volumes.append({"name": MODEL_VOLUME, "image": image})
    return [
        *volumes,
        *tier_volumes(target),
        *retired.volumes(target),
        *tenants.volumes(target),
        *configured.volumes(target),
    ]


def _traffic_volume(target: Target) -> dict[str, Any]:
    """The plan, and what is approved of sources, without what the operator keeps beside them; a pod
    starts without either: `optional` is true of each item too."""
    approved = [names.APPROVALS_KEY] if configured.has_sources(target) else []
    items = [{"key": key, "path": key} for key in (names.TRAFFIC_KEY, *approved)]
    config = {"name": target.traffic_name, "optional": True, "items": items}
    return {"name": _TRAFFIC, "configMap": config}


def _run_volume(target: Target) -> dict[str, Any]:
    """Sockets, and with tiers the shared memory through which blocks pass."""
    tiers = target.spec.tiers
    if tiers is None:
        return {"sizeLimit": "64Mi"}
    size = _RUN_BYTES + quantity.to_bytes(tiers.staging_bytes)
    return {"medium": "Memory", "sizeLimit": str(size)}


def _mounts(target: Target, *, model: bool) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": _RUN, "mountPath": names.RUN_DIR},
        {"name": _TMP, "mountPath": "/tmp"},  # noqa: S108 - a path in the container, not here
        {"name": _CONFIG, "mountPath": names.CONFIG_DIR, "readOnly": True},
    ]
    if model and target.spec.model.source.builtin is None:
        mounts.append({"name": MODEL_VOLUME, "mountPath": names.MODEL_MOUNT_DIR, "readOnly": True})
    return mounts


def _container(target: Target, name: str, image: str, config_key: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": target.images.pull_policy,
        "command": ["chiasm", name, "run", "--config", f"{names.CONFIG_DIR}/{config_key}"],
        "env": [
            {"name": "CHIASM_LOG_LEVEL", "value": target.spec.config.log_level.upper()},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - the only writable folder there
        ],
        # What a container that fails said last becomes readable in its status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _http_probe(path: str, **timing: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}, **timing}


def _sidecar(target: Target) -> dict[str, Any]:
    resources = target.spec.resources.sidecar
    container = _container(
        target, names.SIDECAR_CONTAINER, target.sidecar_image, names.SIDECAR_CONFIG_KEY
    )
    # A setting that a source has comes before the spec's own.
    variables = {item["name"]: item for item in container["env"]} | configured.variables(target)
    return {
        **container,
        "env": list(variables.values()),
        "restartPolicy": "Always",
        "lifecycle": {"preStop": {"exec": {"command": _DRAIN_SIDECAR}}},
        "ports": [
            {"name": "http", "containerPort": names.API_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": names.METRICS_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _http_probe(
            "/health", periodSeconds=1, timeoutSeconds=2, failureThreshold=120
        ),
        "readinessProbe": _http_probe(
            "/ready", periodSeconds=2, timeoutSeconds=5, failureThreshold=3
        ),
        "livenessProbe": _http_probe(
            "/health", periodSeconds=10, timeoutSeconds=5, failureThreshold=6
        ),
        "resources": {"requests": resources.requests, "limits": resources.limits},
        "volumeMounts": [
            *_mounts(target, model=False),
            # No subPath: such mounts never change.
            {"name": _TRAFFIC, "mountPath": names.TRAFFIC_DIR, "readOnly": True},
            *tier_mounts(target),
            *retired.mounts(target),
            *tenants.mounts(target),
            *configured.mounts(target),
        ],
    }


def _worker(target: Target) -> dict[str, Any]:
    rollout = target.spec.rollout
    drain = {"preStop": {"sleep": {"seconds": rollout.drain_seconds}}}
    check = {"exec": {"command": _PROBE_WORKER}}
    container = _container(
        target, names.WORKER_CONTAINER, target.worker_image, names.WORKER_CONFIG_KEY
    )
    return {
        **container,
        "env": container["env"] + placement.variables(target),
        **({"lifecycle": drain} if rollout.drain_seconds else {}),
        "startupProbe": {
            **check,
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": _STARTUP_SECONDS // 2,
        },
        "livenessProbe": {
            **check,
            "periodSeconds": 20,
            "timeoutSeconds": 15,
            "failureThreshold": 5,
        },
        "resources": placement.worker_resources(target),
        "volumeMounts": _mounts(target, model=True),
    }


def _annotations(target: Target) -> dict[str, str]:
    scrape = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(names.METRICS_PORT),
        "prometheus.io/path": "/metrics",
    }
    chosen = scrape if target.spec.observability.scrape else {}
    return {
        "kubectl.kubernetes.io/default-container": names.WORKER_CONTAINER,
        **chosen,
        **target.spec.pod_template.annotations,
        **injector.annotated(target),
    }


def render(target: Target) -> dict[str, Any]:
    """The pod template of the Deployment."""
    user = names.RUN_AS_ID
    return {
        "metadata": {
            "labels": {
                **target.spec.pod_template.labels,
                **target.labels,
                names.LABEL_REVISION: target.revision,
                **configured.labels(target),
            },
            "annotations": _annotations(target),
        },
        "spec": {
            "serviceAccountName": target.name,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": target.spec.rollout.termination_grace_period_seconds,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": user,
                "runAsGroup": user,
                "fsGroup": user,
                "fsGroupChangePolicy": "OnRootMismatch",
                **placement.groups(target),
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **placement.pod_fields(target),
            "initContainers": [*agent.container(target), _sidecar(target)],
            "containers": [_worker(target)],
            "volumes": _volumes(target),
        },
    }
