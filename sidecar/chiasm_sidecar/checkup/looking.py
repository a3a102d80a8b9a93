"""Asks the worker for its checkup and adds what this sidecar knows of the pod.

One at a time, with a pause: anybody in the cluster may ask. Nothing in it tells what clients ask.
"""

from __future__ import annotations

import time

from chiasm_contract.checkup import CHECKS, CheckupReport, Look
from chiasm_contract.clients import ClientSettings
from chiasm_contract.errors import ChiasmError
from chiasm_contract.metric_spec import KV_TIERS
from chiasm_contract.shared_work import SharedWork

from chiasm_sidecar.checkup.judging import PodReadings, report
from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.pod_state import pod_state
from chiasm_sidecar.readiness import Readiness
from chiasm_sidecar.traffic.division import Division
from chiasm_sidecar.worker_client import WorkerClient

_NUM_QUESTIONS = 3
_OWN_CHECKS = ("probes", "timeouts", "leases")


class Checkups:
    """Checkups of one pod."""

    def __init__(
        self,
        worker: WorkerClient,
        readiness: Readiness,
        metrics: Metrics,
        division: Division,
        desk: Desk,
        clients: ClientSettings,
    ) -> None:
        self._worker = worker
        self._readiness = readiness
        self._metrics = metrics
        self._division = division
        self._desk = desk
        self._clients = clients
        self._turns: SharedWork[CheckupReport] = SharedWork()

    async def report(self) -> CheckupReport:
        """The pod's report: of one checkup, however many ask for it at the same time."""
        return await self._turns.take(self._look)

    async def close(self) -> None:
        """End what runs."""
        await self._turns.close()

    async def _look(self) -> CheckupReport:
        started = time.monotonic()
        try:
            engine = await self._worker.checkup()
        except ChiasmError as error:
            engine = CheckupReport(
                looks=tuple(
                    Look(check=check, taken=False, words=f"the worker cannot look: {error.message}")
                    for check in CHECKS
                    if check not in _OWN_CHECKS
                )
            )
        own = report(await self._readings())
        return CheckupReport(
            looks=engine.looks + own.looks,
            findings=engine.findings + own.findings,
            seconds=time.monotonic() - started,
        )

    async def _readings(self) -> PodReadings:
        metrics = self._metrics
        failures = "chiasm_sidecar_worker_failures_total"
        return PodReadings(
            now=time.time(),
            state=pod_state(self._readiness, self._division, self._desk),
            waits_seconds=await self._waits(),
            worker_timeout_seconds=self._clients.worker_timeout_seconds,
            num_requests=int(metrics.total("chiasm_sidecar_requests_total")),
            num_timeouts=int(metrics.total(failures, reason="timeout")),
            open_breakers=tuple(
                tier for tier in KV_TIERS if metrics.total("chiasm_kv_breaker_open", tier=tier)
            ),
            is_draining=self._readiness.draining,
            tier_failures={
                tier: int(metrics.total("chiasm_kv_tier_failures_total", tier=tier))
                for tier in KV_TIERS
            },
        )

    async def _waits(self) -> tuple[float, ...]:
        """How long the worker takes to say that it is well; empty when it does not."""
        waits = []
        try:
            for _ in range(_NUM_QUESTIONS):
                started = time.monotonic()
                await self._worker.health()
                waits.append(time.monotonic() - started)
        except ChiasmError:
            return ()
        return tuple(waits)
