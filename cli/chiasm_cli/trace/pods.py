"""Asks pods for their recordings: one by its address, or all of a resource through kubectl.

Standard library and kubectl only. Must not know: what a recording means.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from chiasm_contract import names
from chiasm_contract.timeline import PodRecording
from pydantic import ValidationError

from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import RESOURCES, Kubectl, KubectlFailed

PATH = "/-/timeline"
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Where:
    """Whom to ask: the address of a pod's port for metrics, or a resource's name."""

    url: str
    mmi: str = ""
    namespace: str = ""
    context: str = ""


def recordings(where: Where, query: Mapping[str, str]) -> dict[str, PodRecording]:
    """What each pod has noted, by its name.

    Raises: CliError when nobody answers, or nobody knows the request.
    """
    if where.mmi:
        return _of_resource(where, query)
    return {urlsplit(where.url).netloc: _of_url(where.url, query)}


def _of_url(url: str, query: Mapping[str, str]) -> PodRecording:
    parts = urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    try:
        kind, port = kinds.get(parts.scheme), parts.port
    except ValueError as error:
        raise CliError(f"{url!r} is not an address: {error}.") from error
    if kind is None or not parts.hostname:
        raise CliError(f"{url!r} is not an address; write it like http://127.0.0.1:9100 .")
    connection = kind(parts.hostname, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}{PATH}?{urlencode(query)}")
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CliError(
            f"nothing answers at {url} ({why}); give the port of metrics and state, 9100 unless it "
            "was chosen otherwise."
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        raise CliError(_fault(body, response.status, url))
    return _parsed(body, url)


def _of_resource(where: Where, query: Mapping[str, str]) -> dict[str, PodRecording]:
    kubectl = Kubectl(where.context, where.namespace)
    (resource,) = kubectl.get(RESOURCES, where.mmi)
    metadata = resource["metadata"]
    scoped = Kubectl(where.context, metadata["namespace"])
    selector = f"--selector={names.LABEL_OWNER}={metadata['name']}"
    found: dict[str, PodRecording] = {}
    words = "it has no running pod"
    for pod in scoped.get("pods", selector):
        if pod.get("status", {}).get("phase") != "Running":
            continue
        name = pod["metadata"]["name"]
        target = f"{name}:{names.METRICS_PORT}"
        proxy = f"/api/v1/namespaces/{metadata['namespace']}/pods/{target}/proxy"
        try:
            body = scoped.raw(f"{proxy}{PATH}?{urlencode(query)}")
        except KubectlFailed as error:
            words = str(error)
            continue
        found[name] = _parsed(body.encode(), name)
    if not found:
        raise CliError(f"no pod of {where.mmi} has told what it did: {words}")
    return found


def _parsed(body: bytes, who: str) -> PodRecording:
    try:
        return PodRecording.model_validate_json(body)
    except ValidationError as error:
        raise CliError(
            f"{who} answers, but not with a recording that this version reads; use the version of "
            "chiasm that runs there."
        ) from error


def _fault(body: bytes, status: int, url: str) -> str:
    try:
        message: str = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        return f"{url} answered with status {status}; is it a pod's port of metrics and state?"
    return message
