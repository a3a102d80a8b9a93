"""The ConfigMap of one revision: `worker.json`, `sidecar.json`, and an agent's own file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from chiasm_contract import names, quantity
from chiasm_contract.api import identity_fields
from chiasm_contract.builtin_models import builtin_identity
from chiasm_contract.config import (
    EngineLimits,
    SidecarConfig,
    TracingConfig,
    VisionConfig,
    WorkerConfig,
)
from chiasm_contract.fingerprint import Value
from chiasm_contract.tiers import BlockService, BlockTiers, DiskTier, PeerTier
from pydantic import BaseModel, ValidationError

from chiasm_operator.render import service
from chiasm_operator.render.configuration import agent
from chiasm_operator.render.configuration.resolved import configuration
from chiasm_operator.render.pod import tenants, tiers
from chiasm_operator.render.target import Target
from chiasm_operator.resource import InvalidSpec

# What the kubelet and the sidecar need of the grace period after the worker's end.
_SIDECAR_SECONDS = 5


def model_path(target: Target) -> PurePosixPath:
    """The model's folder inside the worker container."""
    source = target.spec.model.source
    if source.builtin is not None:
        return PurePosixPath(names.BUILTIN_MODELS_DIR) / source.builtin
    mounted = source.path or source.image
    if mounted is None:
        raise InvalidSpec("spec.model.source: set exactly one of builtin, path and image.")
    return PurePosixPath(names.MODEL_MOUNT_DIR) / mounted.path


def expected_identity(target: Target) -> dict[str, Value]:
    """What every worker must report: what is known of a built-in model, then what is pinned."""
    model = target.spec.model
    try:
        builtin, dtype = model.source.builtin, target.spec.engine.dtype
        known = builtin_identity(builtin, dtype) if builtin else {}
        return {**known, **identity_fields.parse(model.expected_identity)}
    except ValueError as error:
        raise InvalidSpec(f"spec.model: {error}") from error


def media_limits(target: Target) -> dict[str, Any]:
    """What requests may bring, the same for both parts."""
    given = target.spec.model.modalities.model_dump()
    return {
        f"{kind}s": {**limits, "max_bytes": quantity.to_bytes(limits["max_bytes"])}
        for kind, limits in given.items()
    }


def vision(target: Target) -> VisionConfig:
    """What each detail of a picture means; only the worker needs to know."""
    return VisionConfig.model_validate(target.spec.model.vision.model_dump())


def worker_config(target: Target) -> WorkerConfig:
    """`worker.json`."""
    engine = target.spec.engine
    return WorkerConfig.model_validate(
        {
            "model_id": target.model_id,
            "model_path": str(model_path(target)),
            "dtype": engine.dtype,
            "device": "cpu" if target.spec.resources.device.type == "cpu" else "cuda",
            "kernels": engine.kernels,
            "num_threads": engine.num_threads,
            **media_limits(target),
            "vision": vision(target),
            "shutdown_seconds": _shutdown_seconds(target),
            "block_service": None if target.spec.tiers is None else BlockService(),
            "engine": EngineLimits.model_validate(
                {
                    "block_size": engine.block_size,
                    "kv_cache_bytes": quantity.to_bytes(engine.kv_cache_bytes),
                    "max_model_len": engine.max_model_len,
                    "max_num_seqs": engine.max_num_seqs,
                    "max_num_batched_tokens": engine.max_num_batched_tokens,
                    "max_num_encoder_tokens": engine.max_num_encoder_tokens,
                    "max_media_bytes": quantity.to_bytes(engine.max_media_bytes),
                    "max_waiting_requests": engine.max_waiting_requests,
                    "prefix_caching": engine.prefix_caching,
                }
            ),
        }
    )


def block_tiers(target: Target) -> BlockTiers | None:
    """The tiers as the sidecar is told them."""
    asked = target.spec.tiers
    if asked is None:
        return None
    disk = asked.disk
    return BlockTiers(
        staging_bytes=quantity.to_bytes(asked.staging_bytes),
        host_bytes=quantity.to_bytes(asked.host.max_bytes) if asked.host else 0,
        disk=None
        if disk is None
        else DiskTier(path=Path(names.DISK_TIER_DIR), max_bytes=quantity.to_bytes(disk.max_bytes)),
        peers=None
        if asked.peers is None
        else PeerTier(
            hosts=(service.peers_host(target),),
            transport=asked.peers.transport,
            secret_path=tiers.path(asked.peers.secret, names.PEERS_KEY_FILE),
            timeout_seconds=asked.peers.timeout_milliseconds / 1000,
        ),
        valkey=tiers.valkey(target),
        namespace_share=asked.max_namespace_percent / 100,
        retired_path=Path(names.RETIRED_DIR) / names.RETIRED_KEY,
    )


def _shutdown_seconds(target: Target) -> int:
    """How long answers may run after the worker's SIGTERM, which the drain delays."""
    rollout = target.spec.rollout
    grace = rollout.termination_grace_period_seconds
    return grace - rollout.drain_seconds - _SIDECAR_SECONDS


def sidecar_config(target: Target) -> SidecarConfig:
    """`sidecar.json`."""
    spec = target.spec
    return SidecarConfig(
        model_id=target.model_id,
        **media_limits(target),
        max_body_bytes=quantity.to_bytes(spec.media.max_body_bytes),
        request_timeout_seconds=spec.config.request_timeout_seconds,
        expected_identity=expected_identity(target),
        access_log=spec.observability.access_log,
        revision=target.revision,
        traffic_file=Path(names.TRAFFIC_FILE),
        tiers=block_tiers(target),
        tenants=tenants.config(target),
        configuration=configuration(target),
        tracing=_tracing(target),
    )


def _tracing(target: Target) -> TracingConfig | None:
    asked = target.spec.observability.tracing
    return None if asked is None else TracingConfig.model_validate(asked.model_dump())


def _file(config: BaseModel) -> str:
    return json.dumps(config.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"


def files(target: Target) -> dict[str, str]:
    """The files of a revision that is new.

    Raises: InvalidSpec when the spec holds a value that no part would accept.
    """
    try:
        return {
            names.WORKER_CONFIG_KEY: _file(worker_config(target)),
            names.SIDECAR_CONFIG_KEY: _file(sidecar_config(target)),
            **agent.files(target),
        }
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidSpec(f"{error.title}: {field}: {first['msg']}.") from error
    except ValueError as error:
        raise InvalidSpec(str(error)) from error


def render(target: Target, revision: str, kept: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap of a revision, with the files that were made for it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": target.revision_metadata(revision),
        "data": dict(kept),
    }
