"""The operator's own objects: its Lease, the webhook's Secret and the webhook's configuration.

`OWN_PERMISSIONS` lists every call by resource and verb. All but the making of a Lease name the one
object that they are about; the chart makes the Secret.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chiasm_operator.api import APPLY, Api, Refused, call
from chiasm_operator.resource import Manifest

WEBHOOK_MANAGER = "chiasm-operator-webhook"
WEBHOOK_NAME = "multimodalinferences.chiasm.dev"

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

# (API group, resource) -> verbs that name their object, and verbs that cannot.
OWN_PERMISSIONS: Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("coordination.k8s.io", "leases"): (("get", "update"), ("create",)),
    ("", "secrets"): (("get", "update"), ()),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): (("get", "patch"), ()),
}


@dataclass(frozen=True)
class WebhookNames:
    """Where the webhook's objects are."""

    namespace: str
    secret: str
    service: str
    configuration: str


class WebhookObjects:
    """The calls by which the webhook's keys are kept."""

    def __init__(self, api: Api, names: WebhookNames) -> None:
        self._api = api
        self.names = names

    @property
    def _secret(self) -> str:
        return f"/api/v1/namespaces/{self.names.namespace}/secrets/{self.names.secret}"

    async def read_secret(self) -> dict[str, Any]:
        """The Secret as it is stored.

        Raises: Refused, with what to do when it is not there.
        """
        try:
            return await call(self._api, "GET", self._secret)
        except Refused as refused:
            if refused.status != 404:
                raise
            raise Refused(
                404,
                f"The webhook's Secret {self.names.namespace}/{self.names.secret} is gone; "
                "helm upgrade makes it again.",
            ) from refused

    async def write_secret(self, stored: Manifest, data: Mapping[str, bytes]) -> bool:
        """Put `data` where `stored` was read; False when somebody else wrote meanwhile."""
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        try:
            await call(self._api, "PUT", self._secret, body={**stored, "data": encoded})
        except Refused as refused:
            if refused.status != 409:
                raise
            return False
        return True

    async def read_configuration(self) -> tuple[str, bytes]:
        """Its resourceVersion, and the authorities that the API server trusts (may be none)."""
        path = f"{_CONFIGURATIONS}/{self.names.configuration}"
        found = await call(self._api, "GET", path)
        ours = [item for item in found.get("webhooks", ()) if item["name"] == WEBHOOK_NAME]
        if not ours:
            raise Refused(
                404,
                f"ValidatingWebhookConfiguration {self.names.configuration} holds no webhook "
                f"{WEBHOOK_NAME}; helm upgrade makes it again.",
            )
        bundle = ours[0]["clientConfig"].get("caBundle", "")
        return found["metadata"]["resourceVersion"], base64.b64decode(bundle)

    async def publish(self, version: str, authorities: bytes) -> bool:
        """Let the API server trust `authorities`; False when the configuration changed meanwhile.

        Applied, not patched: the bundle is then ours and everything else stays its writer's.
        """
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.names.configuration, "resourceVersion": version},
            "webhooks": [
                {
                    "name": WEBHOOK_NAME,
                    "clientConfig": {"caBundle": base64.b64encode(authorities).decode()},
                }
            ],
        }
        path = f"{_CONFIGURATIONS}/{self.names.configuration}"
        query = {"fieldManager": WEBHOOK_MANAGER, "force": "true"}
        try:
            await call(self._api, "PATCH", path, query=query, body=body, content_type=APPLY)
        except Refused as refused:
            if refused.status != 409:
                raise
            return False
        return True


def decoded(stored: Manifest) -> dict[str, bytes]:
    """The data of a Secret."""
    data: Mapping[str, str] = stored.get("data") or {}
    return {name: base64.b64decode(text) for name, text in data.items()}


class LeaseObject:
    """The calls by which the lease is kept."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    @property
    def _leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"

    async def read(self) -> dict[str, Any] | None:
        """The stored Lease; None when there is none."""
        try:
            return await call(self._api, "GET", f"{self._leases}/{self._name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    async def create(self, spec: Manifest) -> dict[str, Any] | None:
        """Make it; None when somebody else was quicker."""
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return await self._written("POST", self._leases, body)

    async def replace(self, stored: Manifest, spec: Manifest) -> dict[str, Any] | None:
        """Put `spec` where `stored` was read; None when somebody wrote meanwhile."""
        return await self._written("PUT", f"{self._leases}/{self._name}", {**stored, "spec": spec})

    async def _written(self, method: str, path: str, body: Manifest) -> dict[str, Any] | None:
        try:
            return await call(self._api, method, path, body=body)
        except Refused as refused:
            # Changed, made or taken away meanwhile: to be looked at again.
            if refused.status not in {404, 409}:
                raise
            return None
