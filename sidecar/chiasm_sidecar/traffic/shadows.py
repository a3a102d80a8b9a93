"""Asks the canary what stable has answered, and compares: in the background, never for a client.

Only repeatable requests (the likeliest token each time) are asked twice: two draws of one model
differ as well. A place is taken before the request is answered, for its body must be kept until
then; when all are taken, the request is not asked twice.

The canary has pods for its share, not for what is mirrored: that it is full, or late while it
answers others, is no failure of what it would answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chiasm_contract.errors import ChiasmError
from chiasm_contract.sampling import Sampling

from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.traffic.counting import Tally
from chiasm_sidecar.traffic.handover import OF_CANARY, Full, Handover
from chiasm_sidecar.traffic.observer import Observed, StreamReader
from chiasm_sidecar.traffic.routing import Place

log = logging.getLogger("chiasm.sidecar.traffic")

MAX_SHADOWS = 4
# Kept from a request's first byte until its second answer is there, MAX_SHADOWS of them.
MAX_BODY_BYTES = 32 * 2**20


def is_repeatable(sampling: Sampling) -> bool:
    """Whether the same request gets the same text from the same model."""
    return sampling.temperature == 0 or sampling.top_k == 1


@dataclass
class Shadow:
    """One request to be asked again; `tally` is where it counts."""

    place: Place
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    modality: str
    tally: Tally


class Shadows:
    """All that are on their way."""

    def __init__(self, handover: Handover, metrics: Metrics, timeout_seconds: float) -> None:
        self._handover = handover
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self._num_taken = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def take_place(self, modality: str, num_body_bytes: int) -> bool:
        """Whether one more may be asked; whoever gets a place must `ask` or `give_back`."""
        if self._num_taken >= MAX_SHADOWS or num_body_bytes > MAX_BODY_BYTES:
            self._count(modality, "dropped")
            return False
        self._num_taken += 1
        return True

    def give_back(self) -> None:
        """There is nothing to compare with."""
        self._num_taken -= 1

    def ask(self, shadow: Shadow, answers: Sequence[str]) -> None:
        """Compare what the canary says with `answers`, some time soon."""
        task = asyncio.create_task(self._ask(shadow, list(answers)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Give up what still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, shadow: Shadow, answers: list[str]) -> None:
        answered_before = shadow.tally.shadowed
        try:
            async with asyncio.timeout(self._timeout_seconds):
                observed = await self._answer(shadow)
        except Full:
            self._count(shadow.modality, "dropped")
            return
        except TimeoutError:
            if shadow.tally.shadowed == answered_before:
                self._failed(shadow)
                return
            shadow.tally.shadow_late += 1
            self._count(shadow.modality, "late")
            return
        except ChiasmError:
            self._failed(shadow)
            return
        except Exception as error:
            # What a client asked might be in its words.
            fields = {"error": type(error).__name__}
            log.error("a shadowed request failed", extra={"fields": fields})
            self._failed(shadow)
            return
        finally:
            self._num_taken -= 1
        if not observed.whole:
            self._failed(shadow)
            return
        agreed = observed.answers() == answers
        shadow.tally.shadowed += 1
        shadow.tally.agreed += agreed
        self._count(shadow.modality, "agreed" if agreed else "differed")

    async def _answer(self, shadow: Shadow) -> Observed:
        reader = StreamReader(Observed(), keeps_text=True)
        asking = self._handover.ask(shadow.place, shadow.body, shadow.headers, OF_CANARY)
        async with asking as response:
            if response.content_type != "text/event-stream":
                reader.observed.read_complete(await response.read())
                return reader.observed
            async for data in response.content.iter_any():
                reader.feed(data)
        return reader.observed

    def _failed(self, shadow: Shadow) -> None:
        shadow.tally.shadow_errors += 1
        self._count(shadow.modality, "failed")

    def _count(self, modality: str, outcome: str) -> None:
        self._metrics.count("chiasm_traffic_shadowed_total", modality=modality, outcome=outcome)
