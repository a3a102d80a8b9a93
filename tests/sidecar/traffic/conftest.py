"""Sidecars of two revisions on real sockets, each with a scripted worker, and the plan between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_contract.messages import PodState, TokenEvent
from chiasm_contract.traffic import Counts, TrafficPlan, TrafficReport, Version
from chiasm_sidecar.server import listen, running

from tests.sidecar.conftest import ANSWER, Pod, ScriptedWorker, identity
from tests.sidecar.tenants.conftest import MountedSecret
from tests.sidecar.traffic.plans import CANARY, STABLE, plan

KEY = "traffic.json"
SAYS_CANARY = (TokenEvent(text="blue", token_ids=(5,)), *ANSWER[1:])
WEIGHTS = {STABLE: "a" * 64, CANARY: "e" * 64}


@dataclass
class Fleet:
    """`stable` are the pods that clients reach."""

    mount: MountedSecret
    stable: list[Pod] = field(default_factory=list)
    canary: list[Pod] = field(default_factory=list)
    epoch: int = 0

    def versions(self) -> tuple[Version, Version]:
        def version(revision: str, pods: list[Pod]) -> Version:
            return Version(revision=revision, address=pods[0].url.removeprefix("http://"))

        return version(STABLE, self.stable), version(CANARY, self.canary)

    async def follow(self, **fields: Any) -> TrafficPlan:
        """Write a plan, by default half to the canary, and wait until all follow it."""
        self.epoch += 1
        stable, canary = self.versions()
        defaults = {
            "stable": stable,
            "canary": canary,
            "members": tuple(f"{STABLE}-{number}" for number in range(len(self.stable))),
            "member_addresses": tuple(
                pod.metrics_url.removeprefix("http://") for pod in self.stable
            ),
        }
        made = plan(self.epoch, **{**defaults, **fields})
        self.mount.change(**{KEY: made.model_dump_json()})
        for pod in (*self.stable, *self.canary):
            async with asyncio.timeout(20):
                while (await report(pod)).epoch != self.epoch:  # noqa: ASYNC110 - polled
                    await asyncio.sleep(0.02)
        return made

    async def counts(self, revision: str, modality: str = "text") -> Counts:
        """Of all stable pods, as far as they are sums of single numbers."""
        total: dict[str, int] = {}
        for pod in self.stable:
            version = (await report(pod)).versions.get(revision)
            found = Counts() if version is None else version.by_modality.get(modality, Counts())
            for name, value in found:
                if isinstance(value, int):
                    total[name] = total.get(name, 0) + value
        return Counts(**total)


async def report(pod: Pod) -> TrafficReport:
    async with pod.http.get(f"{pod.metrics_url}/state") as response:
        return PodState.model_validate_json(await response.text()).traffic


StartFleet = Callable[..., Awaitable[Fleet]]


@pytest.fixture
async def start_fleet(tmp_path: Path) -> AsyncIterator[StartFleet]:
    async with contextlib.AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        mount = MountedSecret(tmp_path / "traffic")

        async def pod(revision: str, number: int, **settings: Any) -> Pod:
            name = f"{revision}-{number}"
            worker = ScriptedWorker(
                tmp_path / f"{name}.sock",
                identity(name, **{"compute.weights.language": WEIGHTS[revision]}),
                answer=ANSWER if revision == STABLE else SAYS_CANARY,
            )
            await worker.start()
            stack.push_async_callback(worker.stop)
            config = SidecarConfig(
                model_id="demo",
                worker_socket=worker.socket_path,
                host="127.0.0.1",
                revision=revision,
                traffic_file=mount.path / KEY,
                **settings,
            )
            api, metrics = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
            urls = [f"http://127.0.0.1:{sock.getsockname()[1]}" for sock in (api, metrics)]
            sidecar = await stack.enter_async_context(running(config, api, metrics, name))
            made = Pod(worker, sidecar, *urls, http)
            await made.until("Ready")
            return made

        async def start(
            num_stable: int = 1, canary: Mapping[str, Any] | None = None, **settings: Any
        ) -> Fleet:
            fleet = Fleet(mount)
            fleet.canary.append(await pod(CANARY, 0, **settings, **(canary or {})))
            for number in range(num_stable):
                fleet.stable.append(await pod(STABLE, number, **settings))
            return fleet

        yield start


@pytest.fixture
async def fleet(start_fleet: StartFleet) -> Fleet:
    return await start_fleet()
