"""What runs in one operator process, started and stopped as a whole: passes and webhook."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_operator.admission.webhook import Webhook
from chiasm_operator.supervisor import Supervisor


@dataclass(frozen=True)
class Runtime:
    """The parts of the process."""

    supervisor: Supervisor
    webhook: Webhook | None

    async def start(self) -> None:
        """Start every part.

        Raises: Refused when looking at the resources cannot help: no CRD, or no permission.
        """
        if self.webhook is not None:
            self.webhook.start()
        await self.supervisor.start()

    async def stop(self) -> None:
        """Stop every part."""
        if self.webhook is not None:
            await self.webhook.stop()
        await self.supervisor.stop()

    def stalled(self) -> str | None:
        """What no longer makes progress, in a sentence; None while all is well."""
        return self.supervisor.stalled()
