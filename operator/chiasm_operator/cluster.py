"""The only module that calls Kubernetes: plain manifests in, plain manifests out.

`PERMISSIONS` lists every call by resource and verb; the chart's RBAC must grant exactly these.
Children are written by server-side apply with our field manager; `fieldValidation=Strict` makes a
field that Kubernetes does not know an error instead of a silent loss.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import aiohttp
from chiasm_contract import names
from kubernetes_asyncio import client, config

from chiasm_operator.resource import Manifest

STATUS_MANAGER = f"{names.FIELD_MANAGER}-status"

_APPLY = "application/apply-patch+yaml"
_TIMEOUT = aiohttp.ClientTimeout(total=30, connect=5)


@dataclass(frozen=True)
class Kind:
    """Where a kind lives in the API."""

    kind: str
    api_version: str
    plural: str
    optional: bool = False  # the cluster may not know it

    @property
    def group(self) -> str:
        """API group; the core group is empty."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str = "") -> str:
        """Path of one object, or of the collection when `name` is empty."""
        root = "/apis/" if "/" in self.api_version else "/api/"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{self.api_version}{scope}/{self.plural}" + (f"/{name}" if name else "")


RESOURCE = Kind(names.KIND, names.API_VERSION, names.PLURAL)
POD = Kind("Pod", "v1", "pods")
EVENT = Kind("Event", "v1", "events")
CHILD_KINDS = (
    Kind("ServiceAccount", "v1", "serviceaccounts"),
    Kind("ConfigMap", "v1", "configmaps"),
    Kind("Service", "v1", "services"),
    Kind("ControllerRevision", "apps/v1", "controllerrevisions"),
    Kind("Deployment", "apps/v1", "deployments"),
    Kind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
    Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies"),
)
# Made like children, but not watched: their status moves every few seconds, and all that they do
# reaches the operator as a change of the resource's replicas.
AUTOSCALER_KINDS = (
    Kind("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers"),
    Kind("ScaledObject", "keda.sh/v1alpha1", "scaledobjects", optional=True),
)
# Not watched either: what a Gateway says of it is read with the rest, soon when somebody begins to
# wait for it, and ever less often.
ROUTE = Kind("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes", optional=True)
UNWATCHED_KINDS = (*AUTOSCALER_KINDS, ROUTE)
# Of the others there is always one, and it goes with its owner.
PRUNED_KINDS = frozenset(
    {
        *("ConfigMap", "Service", "ControllerRevision", "Deployment", "PodDisruptionBudget"),
        *(kind.kind for kind in UNWATCHED_KINDS),
    }
)
_BY_KIND = {kind.kind: kind for kind in (*CHILD_KINDS, *UNWATCHED_KINDS, RESOURCE, POD, EVENT)}
# A kind that the cluster did not know is not asked for again before this time has gone.
UNKNOWN_KIND_SECONDS = 60.0

# (API group, resource) -> verbs. Applying an object that is not there yet is "create" as well.
PERMISSIONS: Mapping[tuple[str, str], tuple[str, ...]] = {
    (names.GROUP, names.PLURAL): ("get", "list", "watch"),
    (names.GROUP, f"{names.PLURAL}/status"): ("patch",),
    # Needed to set blockOwnerDeletion where OwnerReferencesPermissionEnforcement is on.
    (names.GROUP, f"{names.PLURAL}/finalizers"): ("update",),
    **{
        (kind.group, kind.plural): (
            *("get", "list", "watch", "create", "patch"),
            *(("delete",) if kind.kind in PRUNED_KINDS else ()),
        )
        for kind in CHILD_KINDS
    },
    **{
        (kind.group, kind.plural): ("get", "list", "create", "patch", "delete")
        for kind in UNWATCHED_KINDS
    },
    # A changed annotation makes the kubelet look at a pod's ConfigMaps at once.
    (POD.group, POD.plural): ("list", "watch", "patch"),
    (EVENT.group, EVENT.plural): ("list", "create"),
}


class Refused(Exception):
    """The API server said no; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Cluster:
    """The calls that a pass makes."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._unknown_until: dict[str, float] = {}  # kind -> when it is worth asking again

    @classmethod
    async def connect(cls) -> Cluster:
        """A client with the pod's own credentials, else those of the kubeconfig."""
        try:
            config.load_incluster_config()
        except config.ConfigException:
            await config.load_kube_config()
        return cls(client.ApiClient())

    @property
    def server(self) -> str:
        """Address of the API server, as a URL."""
        address: str = self._api.configuration.host
        return address

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        response = await self._api.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=_TIMEOUT,
        )
        text = await response.text()
        if not 200 <= response.status < 300:
            raise Refused(response.status, _message(text))
        answer: dict[str, Any] = json.loads(text)
        return answer

    async def resources(self, namespaces: Sequence[str]) -> list[Manifest]:
        """Every MultimodalInference of `namespaces`; of the whole cluster when that is empty."""
        found: list[Manifest] = []
        for namespace in namespaces or (None,):
            answer = await self._call("GET", RESOURCE.path(namespace))
            found.extend(answer["items"])
        return found

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """One object, or None when there is none."""
        try:
            return await self._call("GET", _BY_KIND[kind].path(namespace, name))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    async def children(self, namespace: str, owner: str) -> tuple[Manifest, ...]:
        """Every object of the child kinds that carries the owner's label."""
        found = await asyncio.gather(
            *(self._labelled(kind, namespace, owner) for kind in CHILD_KINDS),
            *(self._labelled_if_known(kind, namespace, owner) for kind in UNWATCHED_KINDS),
        )
        return tuple(chain.from_iterable(found))

    async def pods(self, namespace: str, owner: str) -> tuple[Manifest, ...]:
        """Every pod that carries the owner's label."""
        return tuple(await self._labelled(POD, namespace, owner))

    async def _labelled_if_known(self, kind: Kind, namespace: str, owner: str) -> list[Manifest]:
        now = asyncio.get_running_loop().time()
        if now < self._unknown_until.get(kind.kind, 0.0):
            return []
        try:
            return await self._labelled(kind, namespace, owner)
        except Refused as refused:
            if refused.status != 404 or not kind.optional:
                raise
            self._unknown_until[kind.kind] = now + UNKNOWN_KIND_SECONDS
            return []

    async def _labelled(self, kind: Kind, namespace: str, owner: str) -> list[Manifest]:
        selector = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER},{names.LABEL_OWNER}={owner}"
        answer = await self._call("GET", kind.path(namespace), query={"labelSelector": selector})
        # Items of a list carry neither kind nor apiVersion.
        return [
            {**item, "kind": kind.kind, "apiVersion": kind.api_version} for item in answer["items"]
        ]

    async def pod_events(self, namespace: str, pod: str) -> tuple[Manifest, ...]:
        """Warnings about one pod, newest first."""
        query = {"fieldSelector": f"involvedObject.kind=Pod,involvedObject.name={pod},type=Warning"}
        answer = await self._call("GET", EVENT.path(namespace), query=query)
        return tuple(
            sorted(answer["items"], key=lambda item: item.get("lastTimestamp") or "", reverse=True)
        )

    async def apply(self, manifest: Manifest) -> None:
        """Server-side apply of a child.

        Raises: Refused with the API server's message.
        """
        metadata = manifest["metadata"]
        await self._call(
            "PATCH",
            _BY_KIND[manifest["kind"]].path(metadata["namespace"], metadata["name"]),
            query={
                "fieldManager": names.FIELD_MANAGER,
                "force": "true",
                "fieldValidation": "Strict",
            },
            body=manifest,
            content_type=_APPLY,
        )
        self._unknown_until.pop(manifest["kind"], None)

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete a child; none there is no fault."""
        try:
            await self._call("DELETE", _BY_KIND[kind].path(namespace, name))
        except Refused as refused:
            if refused.status != 404:
                raise

    async def annotate_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one annotation of a pod; a pod that is gone meanwhile is no fault."""
        try:
            await self._call(
                "PATCH",
                POD.path(namespace, name),
                query={"fieldManager": names.FIELD_MANAGER},
                body={"metadata": {"annotations": {key: value}}},
                content_type="application/merge-patch+json",
            )
        except Refused as refused:
            if refused.status not in {404, 409}:
                raise

    async def write_status(self, namespace: str, name: str, uid: str, status: Manifest) -> None:
        """Server-side apply of a resource's status; one that is gone meanwhile is no fault."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            # The uid makes the write fail when a new resource has taken the name meanwhile.
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": status,
        }
        try:
            await self._call(
                "PATCH",
                f"{RESOURCE.path(namespace, name)}/status",
                query={
                    "fieldManager": STATUS_MANAGER,
                    "force": "true",
                    "fieldValidation": "Strict",
                },
                body=body,
                content_type=_APPLY,
            )
        except Refused as refused:
            if refused.status not in {404, 409}:
                raise

    async def post_event(self, namespace: str, event: Manifest) -> None:
        """Create an event."""
        await self._call("POST", EVENT.path(namespace), body=event)


def _message(text: str) -> str:
    """The message of the Status object that the API server sends with a refusal."""
    try:
        answer = json.loads(text)
    except ValueError:
        return text[:500]
    return str(answer.get("message", text)) if isinstance(answer, dict) else text[:500]
