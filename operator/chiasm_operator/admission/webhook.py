"""The webhook as one part of the operator: its server and the upkeep of its keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from chiasm_operator.admission.server import WebhookServer
from chiasm_operator.admission.upkeep import KeyUpkeep
from chiasm_operator.own_objects import WebhookObjects


class Webhook:
    """Runs beside the passes and independently of them."""

    def __init__(
        self, objects: WebhookObjects, server: WebhookServer, now: Callable[[], datetime]
    ) -> None:
        self._server = server
        self._upkeep = KeyUpkeep(objects, server, now)
        self._task: asyncio.Task[None] | None = None

    @property
    def listens(self) -> bool:
        """Whether a review would be answered."""
        return self._server.port is not None

    def start(self) -> None:
        """Begin; the server answers once the keys are there."""
        self._task = asyncio.create_task(self._upkeep.keep(), name="webhook keys")

    async def stop(self) -> None:
        """End; requests under way are answered."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.close()
