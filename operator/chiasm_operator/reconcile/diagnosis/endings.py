"""Why a container ended: out of memory, killed by its probe, or by a fault of its own.

A container that is up again is still told of while it keeps ending: each time it ran for less than
what the kubelet takes for recovery. So a pod that is ready for a minute between two crashes never
makes its resource Ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chiasm_contract import names
from chiasm_contract.conditions import Reason

from chiasm_operator.reconcile.diagnosis.moments import is_recent, seconds_between
from chiasm_operator.reconcile.observed import containers_of
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.resource import Manifest

# The kubelet forgets its back-off after a run of this length.
RECOVERY_SECONDS = 600
# The end of the log that a container's status holds is up to 80 lines long.
_MAX_LAST_WORDS_CHARS = 1000
# How a process ends that the kubelet asks or makes to end.
_KILLED = {0, 137, 143}
_FATAL_PROBES = ("Liveness probe failed", "Startup probe failed")


def container_statuses(pod: Manifest) -> list[Manifest]:
    """Of all containers, the sidecar first."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def unhealthy(events: Sequence[Manifest], container: str) -> Iterator[Manifest]:
    """Events of failed probes of one container, newest first."""
    for event in events:
        where = event.get("involvedObject", {}).get("fieldPath", "")
        if event.get("reason") == "Unhealthy" and where.endswith(f"{{{container}}}"):
            yield event


def ended(pod: Manifest, events: Sequence[Manifest], now: str) -> Iterator[Problem]:
    """Of each container that ended and is not up since, or not for long."""
    for item in container_statuses(pod):
        state = item.get("state", {})
        last = state.get("terminated") or item.get("lastState", {}).get("terminated")
        is_up = "running" in state and item.get("started")
        if not last or (is_up and not _keeps_ending(item, last, now)):
            continue
        probe = _killing_probe(item, last, events)
        backs_off = state.get("waiting", {}).get("reason") == "CrashLoopBackOff"
        if last.get("reason") == "OOMKilled":
            yield _out_of_memory(pod, item)
        elif probe is not None:
            yield _probe_failed(pod, item, probe)
        elif last.get("exitCode", 0) != 0 or backs_off or is_up:
            yield _crashed(pod, item, last)


def _keeps_ending(item: Manifest, last: Manifest, now: str) -> bool:
    ran_seconds = seconds_between(last.get("startedAt"), last.get("finishedAt"))
    ran_briefly = ran_seconds is not None and ran_seconds < RECOVERY_SECONDS
    recent = is_recent(last.get("finishedAt"), now, RECOVERY_SECONDS)
    return item.get("restartCount", 0) >= 2 and ran_briefly and recent


def _killing_probe(item: Manifest, last: Manifest, events: Sequence[Manifest]) -> str | None:
    """The text of the probe that failed while the container last ran, if that is why it ended."""
    if last.get("exitCode") not in _KILLED:
        return None
    for event in unhealthy(events, item["name"]):
        text: str = event.get("message", "")
        # Equal events are folded into one, whose last moment may be of the run after this.
        latest = event.get("lastTimestamp") or ""
        first = event.get("firstTimestamp") or latest
        began, finished = last.get("startedAt") or "", last.get("finishedAt") or ""
        if text.startswith(_FATAL_PROBES) and first <= finished and began <= latest:
            return text
    return None


def _subject(pod: Manifest, item: Manifest) -> str:
    return f"Pod {pod['metadata']['name']}: container {item['name']}"


def _times(item: Manifest) -> str:
    match item.get("restartCount", 0):
        case 0:
            return "was not restarted yet"
        case 1:
            return "was restarted once"
        case count:
            return f"was restarted {count} times"


def _out_of_memory(pod: Manifest, item: Manifest) -> Problem:
    made = next((each for each in containers_of(pod) if each["name"] == item["name"]), {})
    limit = made.get("resources", {}).get("limits", {}).get("memory")
    if item["name"] == names.SIDECAR_CONTAINER:
        field, less = "spec.resources.sidecar.limits.memory", "spec.tiers.host.maxBytes"
    else:
        field, less = "spec.resources.limits.memory", "spec.engine.kvCacheBytes or maxMediaBytes"
    more = f"its limit of {limit} ({field})" if limit else "the memory that its node has"
    remedy = f"Raise the limit, or lower {less}." if limit else f"Set {field}, or lower {less}."
    text = f"{_subject(pod, item)} needed more than {more}, was killed and {_times(item)}. {remedy}"
    return Problem(Reason.OUT_OF_MEMORY, text)


def _probe_failed(pod: Manifest, item: Manifest, probe: str) -> Problem:
    return Problem(
        Reason.PROBE_FAILED,
        f"{_subject(pod, item)} did not answer, {_times(item)}: {probe.strip()}. What it did is in "
        f"kubectl logs {pod['metadata']['name']} -c {item['name']} --previous.",
    )


def _crashed(pod: Manifest, item: Manifest, last: Manifest) -> Problem:
    text = (last.get("message") or "").strip()
    if len(text) > _MAX_LAST_WORDS_CHARS:
        text = f"...{text[-_MAX_LAST_WORDS_CHARS:]}"
    return Problem(
        Reason.CRASH_LOOP,
        f"{_subject(pod, item)} ended with code {last.get('exitCode', 0)} "
        f"({last.get('reason', 'Error')}) and {_times(item)}"
        f"{'; its last words: ' + text if text else '.'}",
    )
