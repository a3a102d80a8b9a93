"""Follows one resource: its status through a watch, and what the sidecars of its pods say.

Everything is kept with the moment at which it was seen, on one clock.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from chiasm_contract import names
from chiasm_contract.messages import PodState
from pydantic import ValidationError

_POLL_SECONDS = 0.2
_TIMEOUT = aiohttp.ClientTimeout(total=2)


@dataclass(frozen=True)
class Pod:
    """A pod as Kubernetes has it."""

    name: str
    revision: str
    address: str
    ready: bool
    restarts: int


@dataclass
class Watch:
    """What is known now; `changed` ends a wait for something else."""

    server: str  # of a kubectl proxy
    name: str
    resource: dict[str, Any] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    states: dict[str, PodState] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def rollout(self) -> dict[str, Any]:
        """`status.rollout`."""
        found: dict[str, Any] = self.resource.get("status", {}).get("rollout", {})
        return found

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition; empty when there is none."""
        held = self.resource.get("status", {}).get("conditions", [])
        return next((item for item in held if item["type"] == kind), {})

    def stable_pods(self) -> list[Pod]:
        """The ready pods that clients reach."""
        stable = self.rollout.get("stableRevision")
        return [pod for pod in self.pods.values() if pod.revision == stable and pod.ready]

    def counted(self, revision: str, what: str) -> int:
        """A sum over the sidecars that clients reach, such as `errors` of a revision."""
        return sum(
            getattr(counts, what)
            for pod in self.stable_pods()
            if (state := self.states.get(pod.name)) and revision in state.traffic.versions
            for counts in state.traffic.versions[revision].by_modality.values()
        )

    async def until(self, holds: Callable[[], bool], what: str, seconds: float = 240) -> float:
        """The moment at which `holds` was first seen to.

        Raises: TimeoutError that says what did not come.
        """
        try:
            async with asyncio.timeout(seconds), self.changed:
                await self.changed.wait_for(holds)
                return time.monotonic()
        except TimeoutError:
            raise TimeoutError(f"{what} did not come in {seconds:.0f} s") from None

    async def _note(self, change: Callable[[], None]) -> None:
        async with self.changed:
            change()
            self.changed.notify_all()

    async def follow_objects(self, http: aiohttp.ClientSession) -> None:
        """Both watches, for as long as it is not cancelled."""
        group = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
        chosen = f"labelSelector={names.LABEL_OWNER}%3D{self.name}"
        await asyncio.gather(
            self._watch(http, f"{group}?fieldSelector=metadata.name%3D{self.name}", self._take),
            self._watch(http, f"/api/v1/namespaces/default/pods?{chosen}", self._take_pod),
        )

    async def _watch(
        self, http: aiohttp.ClientSession, path: str, take: Callable[[str, dict[str, Any]], None]
    ) -> None:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                address = f"{self.server}{path}&watch=true"
                async with http.get(address, timeout=aiohttp.ClientTimeout(total=None)) as stream:
                    async for line in stream.content:
                        event = json.loads(line)
                        await self._note(
                            lambda event=event: take(event["type"], event["object"])  # type: ignore[misc]
                        )
            await asyncio.sleep(_POLL_SECONDS)

    def _take(self, kind: str, found: dict[str, Any]) -> None:
        self.resource = {} if kind == "DELETED" else found

    def _take_pod(self, kind: str, found: dict[str, Any]) -> None:
        name, status = found["metadata"]["name"], found.get("status", {})
        if kind == "DELETED":
            self.pods.pop(name, None)
            self.states.pop(name, None)
            return
        held = status.get("conditions", [])
        containers = [
            *status.get("containerStatuses", []), *status.get("initContainerStatuses", [])
        ]  # fmt: skip
        self.pods[name] = Pod(
            name,
            found["metadata"]["labels"].get(names.LABEL_REVISION, ""),
            status.get("podIP", ""),
            any(item["type"] == "Ready" and item["status"] == "True" for item in held),
            sum(item["restartCount"] for item in containers),
        )

    async def follow_sidecars(self, http: aiohttp.ClientSession) -> None:
        """Ask each pod's sidecar five times a second."""
        while True:
            known = [pod for pod in self.pods.values() if pod.address]
            answers = await asyncio.gather(*(self._state(http, pod) for pod in known))
            found = {
                pod.name: state
                for pod, state in zip(known, answers, strict=True)
                if state is not None
            }
            await self._note(lambda found=found: self.states.update(found))  # type: ignore[misc]
            await asyncio.sleep(_POLL_SECONDS)

    async def _state(self, http: aiohttp.ClientSession, pod: Pod) -> PodState | None:
        address = f"http://{pod.address}:{names.METRICS_PORT}/state"
        try:
            async with http.get(address, timeout=_TIMEOUT) as response:
                return PodState.model_validate_json(await response.read())
        except (aiohttp.ClientError, TimeoutError, ValidationError):
            return None


@asynccontextmanager
async def watching(server: str, name: str) -> AsyncIterator[Watch]:
    """Follow resource `name` as long as the context lasts."""
    async with aiohttp.ClientSession() as http:
        watch = Watch(server, name)
        tasks = [
            asyncio.create_task(watch.follow_objects(http)),
            asyncio.create_task(watch.follow_sidecars(http)),
        ]
        try:
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
