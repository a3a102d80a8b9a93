"""What a pass saw: the raw objects, and what each pod's sidecar said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chiasm_contract import names
from chiasm_contract.messages import PodState

from chiasm_operator.resource import Manifest, kind_of

ChildKey = tuple[str, str]


def key_of(manifest: Manifest) -> ChildKey:
    """(kind, name): unique among a resource's children."""
    return kind_of(manifest), manifest["metadata"]["name"]


@dataclass(frozen=True)
class Observed:
    """One look at a resource's surroundings."""

    children: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    states: Mapping[str, PodState] = field(default_factory=dict)  # pod name -> its sidecar's word
    pod_events: Mapping[str, tuple[Manifest, ...]] = field(default_factory=dict)

    def child(self, kind: str, name: str) -> Manifest | None:
        """The child of that kind and name, if there is one."""
        return next((item for item in self.children if key_of(item) == (kind, name)), None)


def revision_of(manifest: Manifest) -> str | None:
    """The revision that a pod or child belongs to."""
    label: str | None = manifest["metadata"].get("labels", {}).get(names.LABEL_REVISION)
    return label


def is_active(pod: Manifest) -> bool:
    """Whether a pod runs or will run: not being deleted, not finished."""
    finished = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return "deletionTimestamp" not in pod["metadata"] and not finished


def is_ready(pod: Manifest) -> bool:
    """Whether the Service sends requests to a pod."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def containers_of(pod: Manifest) -> list[Manifest]:
    """What each container of a pod is made of, the sidecar first."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())]


def volume_of(pod: Manifest, name: str) -> Manifest:
    """The volume of that name, as its pod was made with it; empty if it has none."""
    volumes: Sequence[Manifest] = pod["spec"].get("volumes", ())
    return next((item for item in volumes if item["name"] == name), {})


def pods_of(observed: Observed, revision: str) -> tuple[Manifest, ...]:
    """Active pods of one revision, oldest first."""
    chosen = [pod for pod in observed.pods if is_active(pod) and revision_of(pod) == revision]
    return tuple(
        sorted(
            chosen,
            key=lambda pod: (
                pod["metadata"].get("creationTimestamp", ""),
                pod["metadata"]["name"],
            ),
        )
    )
