"""What the keeper of one source does whatever its kind: turns, proofs, changes, and its report.

A turn looks once and says after how long the next one is due; a fault of a turn leaves what is in
use, and the next turn comes later and later, at a moment that chance chooses.

Must not know: how a source is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chiasm_contract.configuration import (
    Approval,
    Approvals,
    ConfigSource,
    LeaseReport,
    SourceReport,
    Use,
)
from chiasm_contract.ending import end

from chiasm_sidecar.configuration.current import Current, Generation
from chiasm_sidecar.configuration.decide import backoff
from chiasm_sidecar.configuration.meters import ConfigMeters
from chiasm_sidecar.configuration.offers import SourceFault
from chiasm_sidecar.configuration.pace import Pace
from chiasm_sidecar.configuration.proofs import Proof, Proofs

# A look does what is due: another lease, its proof.
_MAX_STEPS = 8

log = logging.getLogger("chiasm.sidecar.configuration")


class Consumer(Protocol):
    """A part of the sidecar that reads what is in use."""

    def reload(self) -> None:
        """Take what lies there now."""

    async def released(self) -> None:
        """Return once nothing depends on what was there before."""


@dataclass
class Surroundings:
    """What all keepers share.

    Attributes:
        pod: the name by which approvals call this pod; revision: whose pod it is.
        approvals: None: none are needed.
        candidates: folders of values that are not in use yet, by source.
        clock: a steady one; wall: seconds since 1970, for reports only; chance: 0 to 1.
    """

    pod: str
    revision: str
    pace: Pace
    proofs: Proofs
    meters: ConfigMeters
    digest_key: Callable[[], bytes] = field(repr=False)
    approvals: Approvals | None = None
    consumers: dict[Use, Consumer] = field(default_factory=dict)
    candidates: dict[str, Path] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def used_by(self, uses: Iterable[Use]) -> list[Consumer]:
        """The parts that read a source."""
        return [self.consumers[use] for use in uses if use in self.consumers]

    def approval(self, source: str) -> Approval | None:
        """What the operator allows of a source."""
        return None if self.approvals is None else self.approvals.of(self.revision, source)


class Keeper:
    """Keeps one source; `run` for ever, `look` once more now."""

    def __init__(self, source: ConfigSource, path: Path, around: Surroundings) -> None:
        self.source = source
        self.around = around
        self.current = Current(path)
        self.generation: Generation | None = self.current.load()
        self.candidate: Generation | None = None
        self.asked: str | None = None
        self.followed: str | None = None
        self.restart: str | None = None
        self.offered: str | None = None
        self.refused: str | None = None
        self.fault: str | None = None
        self._fault_since = 0.0
        self._num_faults = 0
        self._num_proofs = 0
        self._num_proof_faults = 0
        self._prove_at = 0.0
        self._ask_at = 0.0
        self._turning = asyncio.Lock()
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._retiring: dict[int, asyncio.Task[None]] = {}
        if self.generation is not None:
            self.current.swap(self.generation)  # what a crash may have left half done
            self._settled.set()

    # --- turns

    async def turn(self) -> float:
        """Look once; seconds until the next turn.

        Raises: SourceFault.
        """
        raise NotImplementedError

    async def run(self) -> None:
        """Turn for ever."""
        for other in self.current.others():
            self._retire(other)
        while True:
            self._wake.clear()
            pause = await self._turned()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def look(self) -> None:
        """Look now, whatever pause a fault has asked for."""
        self._ask_at = self._prove_at = 0.0
        for _ in range(_MAX_STEPS):
            if await self._turned() > 0:
                break
        self._wake.set()

    def ask(self, asked: str | None) -> None:
        """Another value of `Approvals.asked` is to be followed."""
        self.asked = asked
        around = self.around
        # All pods hear of it together, and must not ask together.
        spread = around.pace.backoff_first * around.chance()
        self._ask_at = max(self._ask_at, around.clock() + spread)
        self._wake.set()

    def wake(self) -> None:
        """Something that decides has changed."""
        self._wake.set()

    async def settled(self) -> None:
        """Return once a value is in use."""
        await self._settled.wait()

    async def _turned(self) -> float:
        async with self._turning:
            try:
                return await self.turn()
            except SourceFault as error:
                return self._failed(str(error))
            except Exception as error:
                # The task must go on; its words might quote what was read.
                return self._failed(f"a bug: {type(error).__name__}")

    def _failed(self, words: str) -> float:
        """Note a fault; the pause after it."""
        around = self.around
        self._num_faults += 1
        if words != self.fault:
            fields = {"source": self.source.name, "fault": words}
            log.warning("a source cannot be asked", extra={"fields": fields})
        if self.fault is None:
            self._fault_since = around.wall()
        self.fault = words
        around.meters.up(self.source.name, False)
        pause = self._pause(self._num_faults)
        self._ask_at = around.clock() + pause
        return pause

    def _answered(self) -> None:
        """The source could be asked."""
        if self.fault is not None:
            log.info("a source can be asked again", extra={"fields": {"source": self.source.name}})
        self.fault = None
        self._num_faults = 0
        self.around.meters.up(self.source.name, True)

    def _pause(self, num_faults: int) -> float:
        pace = self.around.pace
        return backoff(num_faults, pace.backoff_first, pace.backoff_max, self.around.chance())

    # --- candidates

    async def _prove(self, generation: Generation, writes: bool = True) -> Proof:
        others = {
            name: folder
            for name, folder in self.around.candidates.items()
            if name != self.source.name
        }
        return await self.around.proofs.prove(self.source, generation.folder, others, writes)

    async def _try_candidate(self, candidate: Generation) -> bool:
        """Take a candidate if it is proved; else when to try again is noted."""
        around, name = self.around, self.source.name
        around.candidates[name] = candidate.folder
        proof = await self._prove(candidate)
        if proof.outcome == "proved":
            self._take(candidate)
            return True
        if proof.outcome == "refused" and self._num_proof_faults == 0:
            around.meters.rotated(name, "refused")
        if self.refused != proof.words:
            fields = {"source": name, "id": candidate.record.id, "why": proof.words}
            log.warning("a value is not taken", extra={"fields": fields})
        self.refused = proof.words
        around.meters.refused(name, True)
        self._num_proofs += 1
        self._num_proof_faults += proof.outcome == "refused"
        self._prove_at = around.clock() + self._pause(self._num_proofs)
        return False

    def _take(self, candidate: Generation) -> None:
        """Put a proved candidate in use; the old one ends behind what runs on it."""
        around, old = self.around, self.generation
        if old is not None:
            rotations = old.record.rotations + 1
            record = candidate.record.model_copy(update={"rotations": rotations})
            candidate = self.current.note(candidate, record)
            around.meters.rotated(self.source.name, "taken")
        self.current.swap(candidate)
        self.generation = candidate
        self._forget_candidate()
        for consumer in around.used_by(self.source.uses):
            consumer.reload()
        if old is not None:
            self._retire(old)
        self._settled.set()
        fields = {"source": self.source.name, "id": candidate.record.id}
        log.info("a value is in use", extra={"fields": fields})

    def _forget_candidate(self) -> None:
        self.candidate = self.offered = self.refused = None
        self._num_proofs = self._num_proof_faults = 0
        self._prove_at = 0.0
        self.around.candidates.pop(self.source.name, None)
        self.around.meters.refused(self.source.name, False)

    # --- what is replaced

    def _retire(self, old: Generation) -> None:
        task = asyncio.create_task(self._end_later(old))
        self._retiring[old.number] = task
        self._count_old_leases()

        def ended(_: asyncio.Task[None]) -> None:
            self._retiring.pop(old.number, None)
            self._count_old_leases()

        task.add_done_callback(ended)

    def _count_old_leases(self) -> None:
        self.around.meters.old_leases(self.source.name, self._num_old_leases())

    async def _end_later(self, old: Generation) -> None:
        for consumer in self.around.used_by(self.source.uses):
            await consumer.released()
        await self._end(old)
        self.current.remove(old)

    async def _end(self, old: Generation) -> None:
        """Revoke what an old generation holds, however long that takes."""

    async def finish(self) -> None:
        """Revoke everything: the pod ends."""
        await end(self._retiring.values())

    # --- report

    def report(self) -> SourceReport:
        """What is to be said of the source now."""
        generation = self.generation
        return SourceReport(
            name=self.source.name,
            leased=self.source.leased,
            id=None if generation is None else generation.record.id,
            offered=self.offered,
            refused=self.refused,
            fault=self.fault,
            fault_since=self._fault_since if self.fault is not None else None,
            restart=self.restart,
            lease=self._lease(),
            old_leases=self._num_old_leases(),
            rotations=0 if generation is None else generation.record.rotations,
        )

    def _lease(self) -> LeaseReport | None:
        return None

    def _num_old_leases(self) -> int:
        return 0


Keepers = Mapping[str, Keeper]
