"""Asks pods for their recordings: one by its address, or all of a resource through kubectl.

Standard library and kubectl only. Must not know: what a recording means.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from chiasm_contract.timeline import PodRecording
from pydantic import ValidationError

from chiasm_cli import pods, servers
from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import RESOURCES, Kubectl, KubectlFailed

PATH = "/-/timeline"
_TIMEOUT_SECONDS = 60
# How kubectl tells a 404 apart.
_NOT_FOUND = "(NotFound)"


@dataclass(frozen=True)
class Where:
    """Whom to ask: the address of a pod's port for metrics, or a resource's name; neither: the port
    on this machine."""

    url: str | None = None
    mmi: str | None = None
    namespace: str = ""
    context: str = ""


def recordings(where: Where, query: Mapping[str, str]) -> dict[str, PodRecording]:
    """What each pod has noted, by its name; of some seconds, stderr names those that told nothing.

    Raises: CliError when nobody answers, nobody knows the request, or two are named.
    """
    kubectl = Kubectl(where.context, where.namespace)
    pods.check_choice(where.url, where.mmi, kubectl)
    if where.mmi is not None:
        return _of_resource(kubectl, where.mmi, query)
    url = pods.DEFAULT_URL if where.url is None else where.url
    return {urlsplit(url).netloc: _of_url(url, query)}


def _of_url(url: str, query: Mapping[str, str]) -> PodRecording:
    with pods.connection(url, _TIMEOUT_SECONDS) as connection:
        path = urlsplit(url).path.rstrip("/")
        connection.request("GET", f"{path}{PATH}?{urlencode(query)}")
        response = connection.getresponse()
        body = response.read()
    if response.status != 200:
        raise CliError(servers.fault(body, response.status, url, pods.WHO))
    return _parsed(body, url)


def _of_resource(kubectl: Kubectl, mmi: str, query: Mapping[str, str]) -> dict[str, PodRecording]:
    (resource,) = kubectl.get(RESOURCES, mmi)
    found: dict[str, PodRecording] = {}
    failed: dict[str, str] = {}
    strangers = 0
    for pod in pods.running(kubectl, resource):
        try:
            body = kubectl.raw(f"{pod.proxy}{PATH}?{urlencode(query)}")
        except KubectlFailed as error:
            if "request" in query and _NOT_FOUND in str(error):
                strangers += 1
            else:
                failed[pod.name] = str(error)
            continue
        found[pod.name] = _parsed(body.encode(), pod.name)
    if found or strangers:
        for name, words in failed.items():
            print(f"chiasm: {name} is left out: {words}", file=sys.stderr)
    if not found:
        raise CliError(_nobody(mmi, strangers, failed))
    return found


def _nobody(mmi: str, strangers: int, failed: Mapping[str, str]) -> str:
    """Why there is no recording; kubectl does not pass a pod's own words on."""
    if strangers:
        return (
            f"none of the {strangers} pods of {mmi} knows a request of that name, or none any "
            "more; give an answer's id, its X-Request-Id or its trace id, and ask soon after it."
        )
    words = next(iter(failed.values()), "it has no running pod")
    return f"no pod of {mmi} has told what it did: {words}"


def _parsed(body: bytes, who: str) -> PodRecording:
    try:
        return PodRecording.model_validate_json(body)
    except ValidationError as error:
        raise CliError(
            f"{who} answers, but not with a recording that this version reads; use the version of "
            "chiasm that runs there."
        ) from error
