"""Deployments of the made-up cluster: how pods come and go, and what a Deployment says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chiasm_contract import instants, names
from chiasm_contract.configuration import Approvals
from chiasm_contract.traffic import TrafficPlan


@dataclass
class Pod:
    """A pod and what its sidecar does."""

    name: str
    revision: str
    deployment: str
    template: str
    born: int
    ready: bool = False
    plan: TrafficPlan | None = None
    pending: list[tuple[int, TrafficPlan]] = field(default_factory=list)
    allowed: Approvals = field(default_factory=Approvals)
    allowing: list[tuple[int, Approvals]] = field(default_factory=list)
    using: dict[str, str] = field(default_factory=dict)  # by source
    asked: str | None = None
    told: str | None = None
    told_of: str | None = None
    address: str | None = "10.0.0.1"

    @property
    def environment(self) -> str | None:
        """In which its revision is."""
        labels = json.loads(self.template)["metadata"]["labels"]
        found: str | None = labels.get(names.LABEL_ENVIRONMENT)
        return found


def pods_of(item: dict[str, Any], pods: Mapping[str, Pod]) -> list[Pod]:
    name = item["metadata"]["name"]
    return [pod for pod in pods.values() if pod.deployment == name]


def control(
    item: dict[str, Any], pods: dict[str, Pod], created: dict[str, int], moment: int
) -> None:
    """As much of a Deployment as one template needs; another template is surged in.

    `created` counts the pods that each Deployment ever had, which their names come from.
    """
    name, wanted = item["metadata"]["name"], item["spec"]["replicas"]
    template = json.dumps(item["spec"]["template"], sort_keys=True)
    mine = pods_of(item, pods)
    old = [pod for pod in mine if pod.template != template]
    new = [pod for pod in mine if pod.template == template]
    surge = item["spec"]["strategy"]["rollingUpdate"]["maxSurge"] if old else 0
    for _ in range(min(wanted - len(new), wanted + surge - len(mine))):
        number = created[name] = created.get(name, 0) + 1
        revision = item["metadata"]["labels"][names.LABEL_REVISION]
        pod = Pod(f"{name}-{number}", revision, name, template, moment)
        pods[pod.name] = pod
    too_many = len(pods_of(item, pods)) - wanted
    ready = sum(pod.ready for pod in pods_of(item, pods))
    for pod in sorted([*old, *new], key=lambda pod: (pod.template == template, pod.ready)):
        if too_many <= 0 or (old and pod.ready and ready <= wanted):
            break
        too_many -= 1
        ready -= pod.ready
        del pods[pod.name]


def report(item: dict[str, Any], pods: Mapping[str, Pod]) -> None:
    """What Kubernetes says in its status."""
    template = json.dumps(item["spec"]["template"], sort_keys=True)
    mine = pods_of(item, pods)
    updated = sum(pod.template == template for pod in mine)
    done = len(mine) == updated == item["spec"]["replicas"] and all(pod.ready for pod in mine)
    reason = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
    item["status"] = {
        "observedGeneration": item["metadata"]["generation"],
        "replicas": len(mine),
        "updatedReplicas": updated,
        "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
    }


def manifest(pod: Pod, owner: str, start: int) -> dict[str, Any]:
    """The pod as the API server has it; moments count from `start`."""
    told = {names.ANNOTATION_TRAFFIC_EPOCH: pod.told} if pod.told else {}
    told |= {names.ANNOTATION_CONFIG_APPROVAL: pod.told_of} if pod.told_of else {}
    return {
        "metadata": {
            "name": pod.name,
            "creationTimestamp": instants.to_text(start + pod.born),
            "labels": {
                names.LABEL_APP: names.APP,
                names.LABEL_OWNER: owner,
                names.LABEL_REVISION: pod.revision,
            },
            "annotations": told,
        },
        "spec": {},
        "status": {
            "phase": "Running",
            "podIP": pod.address,
            "conditions": [{"type": "Ready", "status": "True" if pod.ready else "False"}],
        },
    }
