"""One call to the API server: a request out, an answer or a refusal back. Knows no kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from kubernetes_asyncio import client, config

from chiasm_operator.resource import Manifest

JSON = "application/json"
APPLY = "application/apply-patch+yaml"


class Refused(Exception):
    """The API server said no; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Api(client.ApiClient):  # type: ignore[misc] # it has no types
    """A client, and how long it waits: for a connection, and for a whole answer. Seconds.

    Nothing is asked again here: a pass that fails is done again, later each time.
    """

    def __init__(self, connect_timeout: float = 5.0, timeout: float = 30.0, **more: Any) -> None:
        super().__init__(**more)
        self.timeout = aiohttp.ClientTimeout(total=timeout, connect=connect_timeout)


async def connect(connect_timeout: float, timeout: float) -> Api:
    """A client with the pod's own credentials, else those of the kubeconfig."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        await config.load_kube_config()
    return Api(connect_timeout, timeout)


async def call(
    api: Api,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: Manifest | None = None,
    content_type: str = JSON,
) -> dict[str, Any]:
    """The answer to one request.

    Raises: Refused with the API server's message, or what aiohttp raises when there is no answer.
    """
    response = await api.call_api(
        path,
        method,
        query_params=list((query or {}).items()),
        header_params={"Accept": JSON, "Content-Type": content_type},
        body=body,
        auth_settings=["BearerToken"],
        _preload_content=False,
        _request_timeout=api.timeout,
    )
    text = await response.text()
    if not 200 <= response.status < 300:
        raise Refused(response.status, _message(text))
    answer: dict[str, Any] = json.loads(text)
    return answer


def _message(text: str) -> str:
    """The message of the Status object that the API server sends with a refusal."""
    try:
        answer = json.loads(text)
    except ValueError:
        return text[:500]
    return str(answer.get("message", text)) if isinstance(answer, dict) else text[:500]
