"""What runs in one operator process: the lease, the passes while it is held, the webhook, and the
answers to the kubelet and to Prometheus.

The passes run in the leader only; the webhook answers, and kopf watches, in every process, so a
follower is ready to go on at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from chiasm_operator.admission.webhook import Webhook
from chiasm_operator.cluster import Kind
from chiasm_operator.health import Health, Report
from chiasm_operator.leadership.keeper import LeaseKeeper
from chiasm_operator.metering.exposition import Known, exposition, told
from chiasm_operator.resource import Manifest
from chiasm_operator.supervisor import Supervisor


class Runtime:
    """The parts of the process, started and stopped as a whole."""

    def __init__(
        self,
        supervisor: Supervisor,
        keeper: LeaseKeeper,
        webhook: Webhook | None,
        close: Callable[[], Awaitable[None]],
        health_address: tuple[str, int],
        wall_seconds: Callable[[], float] = time.time,
    ) -> None:
        self.supervisor = supervisor
        self._keeper = keeper
        self._webhook = webhook
        self._close = close
        self._wall_seconds = wall_seconds
        self.health = Health(*health_address, self.report, self.exposition)
        self._leading = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start every part.

        Raises: Refused when looking at the resources cannot help: no CRD, or no permission. OSError
        when the kubelet's port cannot be listened on.
        """
        await self.health.port.open()  # first: that it starts is an answer, too
        await self.supervisor.check()
        if self._webhook is not None:
            self._webhook.start()
        self._task = asyncio.create_task(self._lead_or_follow(), name="lease")

    async def stop(self) -> None:
        """Stop every part; the lease is given back when the last pass has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.supervisor.pause()
        await self._keeper.release()
        if self._webhook is not None:
            await self._webhook.stop()
        await self.supervisor.stop()
        await self._close()
        await self.health.port.close()

    def told(self, kind: Kind, change: str | None, manifest: Manifest) -> None:
        """A watch tells of an object; None is how kopf says that it was there before."""
        self.supervisor.heard()
        for key in self.supervisor.cluster.told(kind, change, manifest):
            if self._leading and self.supervisor.knows:
                self.supervisor.wake(*key)

    def report(self) -> Report:
        """How this process is."""
        return Report(self.role(), self.supervisor.num_resources, self.stalled(), self._awaited())

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """What is counted, and its content type."""
        supervisor, leads = self.supervisor, self._leading
        known = Known(
            leads=leads,
            counts=supervisor.counts,
            event_age_seconds=supervisor.event_age_seconds,
            sweep_age_seconds=supervisor.sweep_age_seconds if leads else 0.0,
            resources=told(supervisor.cluster.resources()) if leads else (),
            now_seconds=self._wall_seconds(),
        )
        return exposition(known, accept)

    def _awaited(self) -> str | None:
        if self._webhook is None or self._webhook.listens:
            return None
        return "The webhook does not listen yet; the log says what it waits for."

    def stalled(self) -> str | None:
        """What no longer makes progress, in a sentence; None while all is well."""
        if self._task is None:
            return "The operator has not started yet."
        return self._keeper.stalled(self.supervisor.stall_seconds) or (
            self.supervisor.stalled() if self._leading else None
        )

    def role(self) -> str:
        """What this process is, in words."""
        if self._keeper.epoch is not None:
            return f"leading with epoch {self._keeper.epoch} as {self._keeper.identity}"
        return f"following {self._keeper.holder or 'nobody yet'} as {self._keeper.identity}"

    async def _lead_or_follow(self) -> None:
        while True:
            leads = await self._keeper.round()
            if leads and not self._leading:
                self._leading = True
                self.supervisor.start()
            elif not leads and self._leading:
                self._leading = False
                await self.supervisor.pause()
                continue  # perhaps only we were away: nobody need have taken over
            await asyncio.sleep(self._keeper.pause_seconds)
