"""What keeps a pod from being ready, said so that a person knows what to mend.

A pod is explained by what it is made of: it may be of another revision than the spec is now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from chiasm_contract import names
from chiasm_contract.conditions import Reason
from chiasm_contract.messages import PodState

from chiasm_operator.reconcile import secrets
from chiasm_operator.reconcile.diagnosis import departures, endings, scheduling
from chiasm_operator.reconcile.diagnosis.moments import is_recent
from chiasm_operator.reconcile.observed import containers_of, is_ready, volume_of
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
from chiasm_operator.render.pod import MODEL_VOLUME
from chiasm_operator.resource import Manifest

_PULL_FAULTS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
}
_START_FAULTS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_STATE_REASONS = {
    "IdentityMismatch": Reason.IDENTITY_MISMATCH,
    "ProbePictureFailed": Reason.PROBE_PICTURE_FAILED,
    "ModelLoadFailed": Reason.MODEL_LOAD_FAILED,
    "TenantKeysRefused": Reason.TENANT_KEYS_REFUSED,
}
_MISSING_TEMPLATE = re.compile(r'resource claim template "([^"]+)": .*not found')
# A readiness probe that fails this often in a row is no passing slowness.
_MANY_FAILURES = 5
_PROBE_RECENT_SECONDS = 60


def needs_events(pod: Manifest) -> bool:
    """Whether events may tell something: of a pod that is not ready, or that ended before."""
    return not is_ready(pod) or any(
        item.get("lastState", {}).get("terminated") for item in endings.container_statuses(pod)
    )


def diagnose(
    target: Target, pod: Manifest, state: PodState | None, events: Sequence[Manifest], now: str
) -> Problem | None:
    """The one thing to tell about a pod: None when it is merely starting, or ready to stay."""
    if is_ready(pod):
        return next(endings.ended(pod, events, now), None)
    problems = chain(
        _device_claim(target, pod, events),
        scheduling.unscheduled(target, pod),
        departures.on_lost_node(pod, events),
        _mounts(target, pod, events),
        _containers(pod),
        endings.ended(pod, events, now),
        _state(pod, state),
        _silent(pod, state, events, now),
    )
    return next(problems, None)


def lacking(pod: Manifest, state: PodState | None) -> Iterator[Problem]:
    """What a pod that serves does without, although the spec asks for it."""
    for fault in state.tier_faults if state else ():
        yield Problem(
            Reason.TIER_UNAVAILABLE,
            f"{_name(pod)} serves without a tier of spec.tiers and tries again: {fault}",
            serves=True,
        )


def _name(pod: Manifest) -> str:
    return f"Pod {pod['metadata']['name']}"


def _containers(pod: Manifest) -> Iterator[Problem]:
    images = {item["name"]: item["image"] for item in containers_of(pod)}
    for item in endings.container_statuses(pod):
        name = item["name"]
        waiting = item.get("state", {}).get("waiting", {})
        reason, text = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _PULL_FAULTS:
            yield Problem(
                Reason.IMAGE_PULL_FAILED,
                f"Image {images.get(name, '?')!r} of container {name} cannot be pulled: "
                f"{text or reason}",
            )
        elif reason in _START_FAULTS:
            yield Problem(
                Reason.CONTAINER_CANNOT_START,
                f"{_name(pod)}: container {name} cannot start: {text or reason}",
            )


def _model_image(pod: Manifest) -> str | None:
    reference: str | None = volume_of(pod, MODEL_VOLUME).get("image", {}).get("reference")
    return reference


def _model_image_fault(reference: str, text: str) -> Problem:
    return Problem(
        Reason.IMAGE_PULL_FAILED,
        f"Image {reference!r} (spec.model.source.image.reference) cannot be pulled: {text}",
    )


def _model_source(pod: Manifest) -> str:
    """Which field the model comes from; the folder in it is in the worker's own sentence."""
    claim = volume_of(pod, MODEL_VOLUME).get("persistentVolumeClaim")
    if claim:
        return f"spec.model.source.path: claim {claim['claimName']!r}"
    image = _model_image(pod)
    return f"spec.model.source.image: {image!r}" if image else "spec.model.source.builtin"


def _state(pod: Manifest, state: PodState | None) -> Iterator[Problem]:
    if state and not state.ready and state.reason in _STATE_REASONS:
        reason, source = _STATE_REASONS[state.reason], ""
        if reason is Reason.MODEL_LOAD_FAILED:
            source = f" ({_model_source(pod)})"
        elif reason is Reason.TENANT_KEYS_REFUSED:
            source = f" ({secrets.tenants(pod)})"
        yield Problem(reason, f"{_name(pod)}: {state.message}{source}")


def _mounts(target: Target, pod: Manifest, events: Sequence[Manifest]) -> Iterator[Problem]:
    """What only events tell, while it can still be true: they stay after their cause is gone."""
    image = _model_image(pod)
    waiting, sandboxed = _waits_for_volumes(pod), _has_sandbox(pod)
    for event in events:
        text, reason = event.get("message", ""), event.get("reason")
        if waiting and image and reason == "Failed" and image in text:
            yield _model_image_fault(image, text)
        if not sandboxed and reason == "FailedMount":
            yield from secrets.missing(target, text)
        # The first one is often a cache that is not filled yet.
        repeated = event.get("count", 1) > 1
        if not sandboxed and repeated and reason in {"FailedMount", "FailedAttachVolume"}:
            yield Problem(Reason.VOLUME_NOT_MOUNTED, f"{_name(pod)}: {text}")


def _device_claim(target: Target, pod: Manifest, events: Sequence[Manifest]) -> Iterator[Problem]:
    if pod.get("status", {}).get("resourceClaimStatuses"):
        return  # made meanwhile
    for event in events:
        missing = _MISSING_TEMPLATE.search(event.get("message", ""))
        if event.get("reason") == "FailedResourceClaimCreation" and missing:
            yield Problem(
                Reason.CLAIM_NOT_FOUND,
                f"ResourceClaimTemplate {missing[1]!r} (spec.resources.device.claimTemplateName) "
                f"does not exist in namespace {target.resource.namespace!r}; create it or name "
                "another.",
            )


def _silent(
    pod: Manifest, state: PodState | None, events: Sequence[Manifest], now: str
) -> Iterator[Problem]:
    """A sidecar that runs and answers nobody: neither the kubelet nor the operator."""
    if state is not None:
        return
    for event in endings.unhealthy(events, names.SIDECAR_CONTAINER):
        text = event.get("message", "")
        lasting = event.get("count", 1) >= _MANY_FAILURES
        recent = is_recent(event.get("lastTimestamp"), now, _PROBE_RECENT_SECONDS)
        # 503 is its word for a worker that is not up yet.
        if text.startswith("Readiness probe failed") and "503" not in text and lasting and recent:
            yield Problem(
                Reason.PROBE_FAILED,
                f"{_name(pod)}: the sidecar runs and does not answer: {text.strip()}. What it does "
                f"is in kubectl logs {pod['metadata']['name']} -c {names.SIDECAR_CONTAINER}.",
            )


def _waits_for_volumes(pod: Manifest) -> bool:
    """Whether the worker was never created: an image volume is pulled just before."""
    return not any(
        item["name"] == names.WORKER_CONTAINER and item.get("containerID")
        for item in pod.get("status", {}).get("containerStatuses", ())
    )


def _has_sandbox(pod: Manifest) -> bool:
    """Whether all volumes but image volumes are mounted."""
    return any(
        item["type"] == "PodReadyToStartContainers" and item["status"] == "True"
        for item in pod.get("status", {}).get("conditions", ())
    )
