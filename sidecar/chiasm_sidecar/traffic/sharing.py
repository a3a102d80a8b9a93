"""Tells the other sidecars that clients reach which conversations the canary has.

A client that does not send back the conversation's header is recognised by content, and its next
turn may reach any sidecar. The canary's are the few, and whatever is not known anywhere is
stable's, so only theirs are told (and that one was moved to stable). Nobody waits for it: what is
told while an address is busy goes with the next message, and a sidecar that cannot be told loses
nothing but pins.

What is told are keys: digests from which nobody learns what was said. Whoever makes one up moves
a conversation that he knows word for word from one revision to the other, and no more.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import aiohttp
from chiasm_contract.errors import InvalidRequest
from chiasm_contract.traffic import TrafficPlan
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.traffic.handover import Handover

PATH = "/-/pins"
MAX_KEYS = 1024
# Some 70 bytes a key, and their revisions.
MAX_MESSAGE_BYTES = 256 * 1024
_MAX_WAITING = 4 * MAX_KEYS

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PinMessage(BaseModel):
    """Conversations by the revision that they are with."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    pins: dict[Key, Annotated[str, Field(min_length=1, max_length=128)]] = Field(
        max_length=MAX_KEYS
    )


def parse_message(body: bytes) -> dict[bytes, str]:
    """Key -> revision.

    Raises: InvalidRequest when it is no such message.
    """
    try:
        message = PinMessage.model_validate_json(body)
    except ValidationError:
        raise InvalidRequest(
            f"The body is no message of pins: an object pins of up to {MAX_KEYS} keys (64 hex "
            "digits), each with a revision. Only sidecars send them."
        ) from None
    return {bytes.fromhex(key): revision for key, revision in message.pins.items()}


def others(plan: TrafficPlan, member: str) -> tuple[str, ...]:
    """The addresses of all members but `member`, which knows what it would be told."""
    if not plan.member_addresses:
        return ()
    places = zip(plan.members, plan.member_addresses, strict=True)
    return tuple(address for name, address in places if name != member)


class Sharing:
    """Every address that is told something."""

    def __init__(self, handover: Handover, metrics: Metrics, timeout_seconds: float) -> None:
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._handover = handover
        self._metrics = metrics
        self._waiting: dict[str, dict[bytes, str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def tell(self, addresses: tuple[str, ...], pins: dict[bytes, str]) -> None:
        """Have every address told these; returns at once."""
        for address in addresses:
            waiting = self._waiting.setdefault(address, {})
            waiting |= pins
            while len(waiting) > _MAX_WAITING:
                del waiting[next(iter(waiting))]
                self._count(1, "dropped")
            if address not in self._tasks:
                self._tasks[address] = asyncio.create_task(self._tell(address))

    async def end(self) -> None:
        """Give up what has not been told."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, address: str) -> None:
        """Tell one address until nothing waits for it."""
        try:
            while waiting := self._waiting.get(address):
                keys = list(waiting)[:MAX_KEYS]
                pins = {key.hex(): waiting.pop(key) for key in keys}
                self._count(len(pins), await self._post(address, PinMessage(pins=pins)))
        finally:
            self._waiting.pop(address, None)
            del self._tasks[address]

    async def _post(self, address: str, message: PinMessage) -> str:
        try:
            async with self._handover.pool.post(
                f"http://{address}{PATH}",
                data=message.model_dump_json().encode(),
                headers={"content-type": "application/json"},
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                return "told" if response.status == 204 else "failed"
        except (aiohttp.ClientError, TimeoutError):
            return "failed"

    def _count(self, number: int, outcome: str) -> None:
        self._metrics.count("chiasm_traffic_pins_told_total", number, outcome=outcome)
