"""The only module that calls Kubernetes: plain manifests in, plain manifests out.

`PERMISSIONS` lists every call by resource and verb; the chart's RBAC must grant exactly these.
Children are written by server-side apply with our field manager; `fieldValidation=Strict` makes a
field that Kubernetes does not know an error instead of a silent loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chiasm_contract import names

from chiasm_operator.api import APPLY, JSON, Api, Refused, call
from chiasm_operator.index import Index, Key, version_of, whose
from chiasm_operator.leadership.fence import Fence
from chiasm_operator.resource import Manifest, kind_of

STATUS_MANAGER = f"{names.FIELD_MANAGER}-status"


@dataclass(frozen=True)
class Kind:
    """Where a kind lives in the API."""

    kind: str
    api_version: str
    plural: str
    optional: bool = False  # the cluster may not know it

    @property
    def key(self) -> str:
        """What it is called where kinds of all groups are: see `kind_of`."""
        return kind_of({"kind": self.kind, "apiVersion": self.api_version})

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
SECRET = Kind("Secret", "v1", "secrets")
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
# Nor these: what they deliver reaches pods, whose sidecars say what became of it.
_ESO, _VSO = "external-secrets.io", "secrets.hashicorp.com/v1beta1"
DELIVERY_KINDS = (
    Kind("SecretStore", f"{_ESO}/v1", "secretstores", optional=True),
    Kind("ExternalSecret", f"{_ESO}/v1", "externalsecrets", optional=True),
    Kind("VaultDynamicSecret", f"generators.{_ESO}/v1alpha1", "vaultdynamicsecrets", optional=True),
    Kind("VaultConnection", _VSO, "vaultconnections", optional=True),
    Kind("VaultAuth", _VSO, "vaultauths", optional=True),
    Kind("VaultStaticSecret", _VSO, "vaultstaticsecrets", optional=True),
    Kind("VaultDynamicSecret", _VSO, "vaultdynamicsecrets", optional=True),
    Kind("VaultPKISecret", _VSO, "vaultpkisecrets", optional=True),
    Kind(
        "SecretProviderClass",
        "secrets-store.csi.x-k8s.io/v1",
        "secretproviderclasses",
        optional=True,
    ),
)
UNWATCHED_KINDS = (*AUTOSCALER_KINDS, ROUTE, *DELIVERY_KINDS)
# Of the others there is always one, and it goes with its owner.
PRUNED_KINDS = frozenset(
    {
        *("ConfigMap", "Service", "ControllerRevision", "Deployment", "PodDisruptionBudget"),
        *(kind.key for kind in UNWATCHED_KINDS),
    }
)
_BY_KIND = {kind.key: kind for kind in (*CHILD_KINDS, *UNWATCHED_KINDS, RESOURCE, POD, EVENT)}
# What the index holds, each listed once before the first pass.
KNOWN_KINDS = (RESOURCE, POD, *CHILD_KINDS, *UNWATCHED_KINDS)
OUR_LABEL = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"

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
    # Made once, by its name, and never read: no right to read any is needed.
    (SECRET.group, SECRET.plural): ("create",),
}


class Cluster:
    """The calls that a pass makes."""

    def __init__(self, api: Api, fence: Fence) -> None:
        self.api = api
        self.fence = fence
        self.index = Index()

    @property
    def server(self) -> str:
        """Address of the API server, as a URL."""
        address: str = self.api.configuration.host
        return address

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        if method != "GET":
            self.fence.check()
        return await call(self.api, method, path, query=query, body=body, content_type=content_type)

    async def relist(self, kinds: Iterable[Kind], namespaces: Sequence[str]) -> set[Key]:
        """Take the index's word for nothing: list `kinds` and say which resources that is news of.

        In `namespaces`, or in the whole cluster when that is empty.
        """
        news: set[Key] = set()
        for kind in kinds:
            listed, versions = [], []
            for namespace in namespaces or (None,):
                answer = await self._list(kind, namespace)
                listed += [_normal(kind, item) for item in answer["items"]]
                versions.append(version_of(answer))
            # What changed between the first of several lists and the last is told by the watches.
            news |= self.index.replace(kind.key, listed, min(versions))
        return news

    async def _list(self, kind: Kind, namespace: str | None) -> dict[str, Any]:
        query = {} if kind is RESOURCE else {"labelSelector": OUR_LABEL}
        try:
            return await self._call("GET", kind.path(namespace), query=query)
        except Refused as refused:
            if refused.status != 404 or not kind.optional:
                raise
            return {"metadata": {"resourceVersion": str(sys.maxsize)}, "items": []}

    def told(self, kind: Kind, change: str | None, manifest: Manifest) -> set[Key]:
        """Take in what a watch told; the resources that it is news of: two, where a child has
        another owner's label than before."""
        known = _normal(kind, manifest)
        metadata = known["metadata"]
        before = self.index.get(kind.key, metadata["namespace"], metadata["name"])
        put = self.index.drop if change == "DELETED" else self.index.put
        if not put(kind.key, known):
            return set()
        return {whose(kind.key, each) for each in (before, known) if each is not None}

    def resource_of(self, namespace: str, name: str) -> Manifest | None:
        """A MultimodalInference as the index has it."""
        return self.index.get(RESOURCE.kind, namespace, name)

    def resources(self) -> tuple[Manifest, ...]:
        """Every MultimodalInference that the index has."""
        found = (self.resource_of(*key) for key in self.index.keys(RESOURCE.kind))
        return tuple(each for each in found if each is not None)

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """One object, or None when there is none."""
        try:
            return await self._call("GET", _BY_KIND[kind].path(namespace, name))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    async def children(self, namespace: str, owner: str) -> tuple[Manifest, ...]:
        """Every object of the child kinds that carries the owner's label, as the index has it.

        Those that no watch tells of are asked for; few resources have any.
        """
        unwatched = {kind.key for kind in UNWATCHED_KINDS}
        for known in list(self.index.owned(namespace, owner)):
            if kind_of(known) in unwatched:
                await self._refresh(known)
        owned = self.index.owned(namespace, owner)
        return tuple(item for item in owned if item["kind"] != POD.kind)

    async def _refresh(self, known: Manifest) -> None:
        metadata, kind = known["metadata"], kind_of(known)
        live = await self.get(kind, metadata["namespace"], metadata["name"])
        if live is None:
            self.index.drop(kind, known)
        else:
            self.index.put(kind, _normal(_BY_KIND[kind], live))

    def pods(self, namespace: str, owner: str) -> tuple[Manifest, ...]:
        """Every pod that carries the owner's label, as the index has it."""
        owned = self.index.owned(namespace, owner)
        return tuple(item for item in owned if item["kind"] == POD.kind)

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
        metadata, kind = manifest["metadata"], _BY_KIND[kind_of(manifest)]
        answer = await self._call(
            "PATCH",
            kind.path(metadata["namespace"], metadata["name"]),
            query={
                "fieldManager": names.FIELD_MANAGER,
                "force": "true",
                "fieldValidation": "Strict",
            },
            body=manifest,
            content_type=APPLY,
        )
        # The next pass must see it, whether or not the watch has told of it by then.
        self.index.put(kind.key, _normal(kind, answer))

    async def create_once(self, manifest: Manifest) -> None:
        """Create a Secret; one of that name stays as it is.

        Raises: Refused with the API server's message.
        """
        try:
            await self._call("POST", SECRET.path(manifest["metadata"]["namespace"]), body=manifest)
        except Refused as refused:
            if refused.status != 409:
                raise

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete a child that the index has; none there is no fault.

        What has its name by now without being it stays.
        """
        known = self.index.get(kind, namespace, name)
        if known is None:
            return
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": known["metadata"]["uid"]},
        }
        try:
            answer = await self._call("DELETE", _BY_KIND[kind].path(namespace, name), body=body)
        except Refused as refused:
            if refused.status not in {404, 409}:
                raise
            await self._refresh(known)
            return
        if answer.get("metadata", {}).get("deletionTimestamp"):
            self.index.put(kind, _normal(_BY_KIND[kind], answer))  # it is going
        else:
            self.index.drop(kind, known)

    async def annotate_pod(self, namespace: str, name: str, key: str, value: str) -> None:
        """Set one annotation of a pod; a pod that is gone meanwhile is no fault."""
        try:
            answer = await self._call(
                "PATCH",
                POD.path(namespace, name),
                query={"fieldManager": names.FIELD_MANAGER},
                body={"metadata": {"annotations": {key: value}}},
                content_type="application/merge-patch+json",
            )
        except Refused as refused:
            if refused.status not in {404, 409}:
                raise
        else:
            self.index.put(POD.kind, _normal(POD, answer))

    async def write_status(self, seen: Manifest, status: Manifest) -> bool:
        """Server-side apply of the status of a resource that was `seen`.

        False when it has changed since, is gone, or another one has its name: look again.
        """
        metadata = seen["metadata"]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            # Both make the write fail when it would tell of something that is no longer so.
            "metadata": {key: metadata[key] for key in ("name", "uid", "resourceVersion")},
            "status": status,
        }
        try:
            answer = await self._call(
                "PATCH",
                f"{RESOURCE.path(metadata['namespace'], metadata['name'])}/status",
                query={
                    "fieldManager": STATUS_MANAGER,
                    "force": "true",
                    "fieldValidation": "Strict",
                },
                body=body,
                content_type=APPLY,
            )
        except Refused as refused:
            if refused.status not in {404, 409}:
                raise
            return False
        self.index.put(RESOURCE.kind, _normal(RESOURCE, answer))
        return True

    async def post_event(self, namespace: str, event: Manifest) -> None:
        """Create an event."""
        await self._call("POST", EVENT.path(namespace), body=event)


def _normal(kind: Kind, manifest: Manifest) -> Manifest:
    """`manifest` as the index keeps it: items of a list carry no kind, and only of resources does
    anybody ask by whom each field was written, which is half of an object's size."""
    metadata = manifest["metadata"]
    if kind is not RESOURCE:
        metadata = {key: value for key, value in metadata.items() if key != "managedFields"}
    return {**manifest, "kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
