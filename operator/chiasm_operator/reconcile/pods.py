"""What keeps a pod from being ready, said so that a person knows what to mend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from chiasm_contract import names
from chiasm_contract.conditions import Reason
from chiasm_contract.messages import PodState

from chiasm_operator.reconcile import secrets
from chiasm_operator.reconcile.observed import is_ready
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target
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
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_STATE_REASONS = {
    "IdentityMismatch": Reason.IDENTITY_MISMATCH,
    "ProbePictureFailed": Reason.PROBE_PICTURE_FAILED,
    "ModelLoadFailed": Reason.MODEL_LOAD_FAILED,
    "TenantKeysRefused": Reason.TENANT_KEYS_REFUSED,
}

# The end of the log that a container's status holds is up to 80 lines long.
_MAX_LAST_WORDS_CHARS = 1000


def diagnose(
    target: Target, pod: Manifest, state: PodState | None, events: Sequence[Manifest]
) -> Problem | None:
    """The one thing to tell about a pod that is not ready; None when it is merely starting."""
    if is_ready(pod):
        return None
    problems = chain(
        _unscheduled(target, pod),
        _mounts(target, pod, events),
        _containers(target, pod),
        _state(target, pod, state),
    )
    return next(problems, None)


def lacking(pod: Manifest, state: PodState | None) -> Iterator[Problem]:
    """What a pod that serves does without, although the spec asks for it."""
    for fault in state.tier_faults if state else ():
        yield Problem(
            Reason.TIER_UNAVAILABLE,
            f"{_name(pod)} serves without a tier of spec.tiers until it is replaced: {fault}",
            serves=True,
        )


def _name(pod: Manifest) -> str:
    return f"Pod {pod['metadata']['name']}"


def _unscheduled(target: Target, pod: Manifest) -> Iterator[Problem]:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] != "PodScheduled" or condition["status"] != "False":
            continue
        text = condition.get("message", "no reason given")
        missing = _MISSING_CLAIM.search(text)
        if missing:
            yield Problem(
                Reason.CLAIM_NOT_FOUND,
                f"PersistentVolumeClaim {missing[1]!r} (spec.model.source.path.claimName) does not "
                f"exist in namespace {target.resource.namespace!r}; create it or name another.",
            )
        else:
            yield Problem(Reason.UNSCHEDULABLE, f"{_name(pod)} fits on no node: {text}")


def _containers(target: Target, pod: Manifest) -> Iterator[Problem]:
    status = pod.get("status", {})
    images = {
        item["name"]: item["image"]
        for item in [*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())]
    }
    for item in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
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
        yield from _crash(pod, item)


def _model_image_fault(target: Target, text: str) -> Problem:
    source = target.spec.model.source.image
    reference = source.reference if source else "?"
    return Problem(
        Reason.IMAGE_PULL_FAILED,
        f"Image {reference!r} (spec.model.source.image.reference) cannot be pulled: {text}",
    )


def _crash(pod: Manifest, item: Manifest) -> Iterator[Problem]:
    """A container that ended and has not come up since."""
    state = item.get("state", {})
    if "running" in state and item.get("started"):
        return
    ended = state.get("terminated") or item.get("lastState", {}).get("terminated")
    if not ended or ended.get("exitCode", 0) == 0:
        return
    text = ended.get("message", "").strip()
    if len(text) > _MAX_LAST_WORDS_CHARS:
        text = f"...{text[-_MAX_LAST_WORDS_CHARS:]}"
    cause = ended.get("reason", "Error")
    yield Problem(
        Reason.CRASH_LOOP,
        f"{_name(pod)}: container {item['name']} ended with code {ended['exitCode']} ({cause}) "
        f"and was restarted {item.get('restartCount', 0)} times"
        f"{'; its last words: ' + text if text else '.'}",
    )


def _model_source(target: Target) -> str:
    source = target.spec.model.source
    if source.path:
        folder = source.path.path or "its root"
        return f"spec.model.source.path: claim {source.path.claim_name!r}, folder {folder!r}"
    if source.image:
        return f"spec.model.source.image: {source.image.reference!r}, path {source.image.path!r}"
    return f"spec.model.source.builtin: {source.builtin!r}"


def _state(target: Target, pod: Manifest, state: PodState | None) -> Iterator[Problem]:
    if state and not state.ready and state.reason in _STATE_REASONS:
        reason, source = _STATE_REASONS[state.reason], ""
        if reason is Reason.MODEL_LOAD_FAILED:
            source = f" ({_model_source(target)})"
        elif reason is Reason.TENANT_KEYS_REFUSED:
            source = f" ({secrets.tenants(target)})"
        yield Problem(reason, f"{_name(pod)}: {state.message}{source}")


def _mounts(target: Target, pod: Manifest, events: Sequence[Manifest]) -> Iterator[Problem]:
    """What only events tell, while it can still be true: they stay after their cause is gone."""
    source = target.spec.model.source.image
    waiting, sandboxed = _waits_for_volumes(pod), _has_sandbox(pod)
    for event in events:
        text, reason = event.get("message", ""), event.get("reason")
        if waiting and source and reason == "Failed" and source.reference in text:
            yield _model_image_fault(target, text)
        if not sandboxed and reason == "FailedMount":
            yield from secrets.missing(target, text)
        # The first one is often a cache that is not filled yet.
        repeated = event.get("count", 1) > 1
        if not sandboxed and repeated and reason in {"FailedMount", "FailedAttachVolume"}:
            yield Problem(Reason.VOLUME_NOT_MOUNTED, f"{_name(pod)}: {text}")


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
