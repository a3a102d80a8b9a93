"""The operator's own objects: the webhook's Secret and its configuration.

`OWN_PERMISSIONS` lists every call by resource and verb. Each names the one object that it is about;
the chart makes the Secret, so that no right to create Secrets is needed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes_asyncio import client

from chiasm_operator.api import APPLY, Refused, call
from chiasm_operator.resource import Manifest

WEBHOOK_MANAGER = "chiasm-operator-webhook"
WEBHOOK_NAME = "multimodalinferences.chiasm.dev"

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

# (API group, resource) -> verbs that name their object, and verbs that cannot.
OWN_PERMISSIONS: Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
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

    def __init__(self, api: client.ApiClient, names: WebhookNames) -> None:
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
