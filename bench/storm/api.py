"""The API server as the storm sees it: calls, streams of changes, and its own count of calls."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

FLOW = "chiasm-storm"


@dataclass(frozen=True)
class Counts:
    """What the API server has counted so far."""

    calls: int  # begun for the operator's account
    cpu_seconds: float  # of its own


class Api:
    """Calls with the credentials of a kubeconfig that holds its certificates."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        self._server = cluster["server"]
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=64))

    async def close(self) -> None:
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> Any:
        """The answer as JSON; what is there already is as good as made."""
        headers = {"Content-Type": kind}
        data = None if body is None else json.dumps(body)
        url = f"{self._server}{path}"
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 300 and answer.status not in {404, 409}:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
            return json.loads(text)

    async def watch(self, path: str, query: str) -> AsyncIterator[tuple[float, dict[str, Any]]]:
        """Changes as they arrive, with the time of arrival, from now on."""
        now = (await self.call("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        url = f"{self._server}{path}?watch=1&resourceVersion={now}&{query}"
        timeout = aiohttp.ClientTimeout(total=None)
        # Names and labels are enough, and leave the two cores to those who are measured.
        kind = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        headers = {"Accept": kind}
        async with self._session.get(
            url, timeout=timeout, headers=headers, read_bufsize=2**22
        ) as answer:
            async for line in answer.content:
                yield time.monotonic(), json.loads(line)

    async def counts(self) -> Counts:
        """Its own counters: flow control counts by flow schema, and the operator has one."""
        async with self._session.get(f"{self._server}/metrics") as answer:
            text = await answer.text()
        of_flow = rf"apiserver_flowcontrol_dispatched_requests_total\{{[^}}]*\"{FLOW}\"[^}}]*\}}"
        calls = re.findall(rf"^{of_flow} (\S+)$", text, re.MULTILINE)
        cpu = re.findall(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)
        return Counts(int(sum(map(float, calls))), float(cpu[0]))


async def give_the_operator_a_flow(api: Api, namespace: str) -> None:
    """A flow schema for its account, under the same priority as all accounts have."""
    group = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    account = {"name": "chiasm", "namespace": namespace}
    rule = {
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
        "resourceRules": [
            {
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                "namespaces": ["*"], "clusterScope": True,
            }
        ],
    }  # fmt: skip
    body = {
        "metadata": {"name": FLOW},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},
            "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule],
        },
    }
    await api.call("POST", group, body)
    await asyncio.sleep(2)  # the API server takes up new schemas within a second


async def remove_the_flow(api: Api) -> None:
    await api.call("DELETE", f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{FLOW}")
