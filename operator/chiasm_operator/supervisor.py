"""One task per resource, woken by any event about it, and the heartbeat that proves they run.

Events only wake; what to do is read from the cluster each time, so a lost, doubled or reordered
event changes nothing but the delay. A sweep lists all resources regularly, so that even a dead
watch only makes the operator slower. A resource's passes never overlap.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from chiasm_contract import logs
from chiasm_contract.operator_metric_specs import PassOutcome

from chiasm_operator.api import Refused
from chiasm_operator.cluster import (
    CHILD_KINDS,
    KNOWN_KINDS,
    POD,
    RESOURCE,
    UNWATCHED_KINDS,
    Cluster,
    Kind,
)
from chiasm_operator.leadership.fence import Deposed
from chiasm_operator.metering.passes import PassCounts
from chiasm_operator.passes import Pass, Rest

logger = logging.getLogger(__name__)

Key = tuple[str, str]  # namespace, name

# unauthorized, forbidden, no such resource: a person has to act first
_LASTING_REFUSALS = (401, 403, 404)

# Events come in bursts (a rollout changes pods, sets and counts at once): gather them.
GATHER_SECONDS = 0.1
# More at once make none of them quicker: the API server and this process share what they take.
MAX_PASSES = 12
# Listed with every sweep: what passes cannot do without, and what is not watched.
_EACH_SWEEP = (RESOURCE, *UNWATCHED_KINDS)
# What is watched is listed in turns, so that even a dead watch is made up for in minutes.
_IN_TURN = (POD, *CHILD_KINDS)


@dataclass
class _Runner:
    """The task of one resource and what it last did."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    pass_began: float | None = None
    is_new: bool = True  # no pass has ended yet


class Gate:
    """Lets a number of passes run at once: first come, first served, and the first pass of a
    resource before the later ones of others, so that in a storm everybody gets pods early."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._queues: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque())

    async def enter(self, *, urgent: bool) -> None:
        """Wait for a place."""
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues[0 if urgent else 1].append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()  # it was given in the same moment
            raise

    def leave(self) -> None:
        """Hand the place on."""
        for queue in self._queues:
            while queue:
                place = queue.popleft()
                if not place.done():
                    place.set_result(None)
                    return
        self._free += 1


@dataclass(frozen=True)
class Tempo:
    """How often to look."""

    resync_seconds: float
    unsettled_seconds: float
    stall_seconds: float
    backoff_max_seconds: float = 30.0


class Supervisor:
    """Starts, wakes and ends the tasks."""

    def __init__(
        self,
        one_pass: Pass,
        tempo: Tempo,
        namespaces: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        self._pass = one_pass
        self._tempo = tempo
        self._namespaces = namespaces
        self._clock = clock
        self._runners: dict[Key, _Runner] = {}
        self._gate = Gate(MAX_PASSES)
        self.knows = False  # whether everything has been listed once; a pass before would misjudge
        self._sweeper: asyncio.Task[None] | None = None
        self._swept = self._heard = clock()
        self._sweep_failed = False
        self.counts = PassCounts()

    def start(self) -> None:
        """List everything, then keep sweeping; passes begin when all is known.

        Nobody waits for it: listing can take longer than a lease lasts.
        """
        self._swept = self._clock()
        self._sweeper = asyncio.create_task(self._keep_sweeping(), name="sweep")

    async def check(self) -> None:
        """Look once and start nothing.

        Raises: Refused when looking again cannot help: no CRD, or no permission.
        """
        try:
            await self._pass.cluster.relist((RESOURCE,), self._namespaces)
        except Exception as error:
            if isinstance(error, Refused) and error.status in _LASTING_REFUSALS:
                raise
            logger.warning("the resources could not be listed yet: %s", error)

    async def stop(self) -> None:
        """End every task and close the connections."""
        await self.pause()
        await self._pass.close()

    async def pause(self) -> None:
        """End every task; what they were doing is done again by the next start."""
        self.knows = False  # what is told from now on wakes nobody
        tasks = [runner.task for runner in self._runners.values()] + [self._sweeper]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._runners.clear()
        self._sweeper = None

    def wake(self, namespace: str, name: str) -> None:
        """Something about this resource may have changed; starts its task when it has none."""
        key = (namespace, name)
        runner = self._runners.get(key)
        if runner is None:
            runner = self._runners[key] = _Runner()
            runner.task = asyncio.create_task(self._run(key, runner), name=f"{namespace}/{name}")
        runner.wake.set()

    def heard(self) -> None:
        """A watch has told of something, whatever it was."""
        self._heard = self._clock()

    @property
    def event_age_seconds(self) -> float:
        """How long no watch has told of anything."""
        return self._clock() - self._heard

    @property
    def sweep_age_seconds(self) -> float:
        """How long the resources have not been listed."""
        return self._clock() - self._swept

    def stalled(self) -> str | None:
        """What no longer makes progress, in a sentence; None while all is well."""
        now = self._clock()
        limit = self._tempo.stall_seconds
        if self.sweep_age_seconds > self._tempo.resync_seconds + limit:
            return f"The resources were last listed {self.sweep_age_seconds:.0f} s ago."
        for (namespace, name), runner in self._runners.items():
            if runner.pass_began is not None and now - runner.pass_began > limit:
                seconds = now - runner.pass_began
                return f"A pass over {namespace}/{name} has run for {seconds:.0f} s."
        return None

    @property
    def stall_seconds(self) -> float:
        """How long something may take before it counts as stalled."""
        return self._tempo.stall_seconds

    @property
    def cluster(self) -> Cluster:
        """What the passes work on."""
        return self._pass.cluster

    @property
    def num_resources(self) -> int:
        """Resources that have a task."""
        return len(self._runners)

    async def _keep_sweeping(self) -> None:
        turns = itertools.cycle(_IN_TURN)
        while True:
            try:
                kinds = (*_EACH_SWEEP, next(turns)) if self.knows else KNOWN_KINDS
                await self._sweep(kinds)
            except Exception as error:
                self._sweep_failed = True
                logger.warning("the resources could not be listed: will try again: %r", error)
            tempo = self._tempo
            await asyncio.sleep(
                tempo.unsettled_seconds if self._sweep_failed else tempo.resync_seconds
            )

    async def _sweep(self, kinds: Iterable[Kind]) -> None:
        """List `kinds` and wake whatever no watch has woken."""
        cluster = self._pass.cluster
        news = await cluster.relist(kinds, self._namespaces)
        self.knows = self.knows or set(KNOWN_KINDS) <= set(kinds)
        for key in cluster.index.keys(RESOURCE.kind):
            if key in news or key not in self._runners:
                self.wake(*key)
        self._swept = self._clock()
        self._sweep_failed = False

    async def _run(self, key: Key, runner: _Runner) -> None:
        failures = idle = 0
        logs.bind(resource="/".join(key))
        try:
            while True:
                await self._gate.enter(urgent=runner.is_new)
                runner.wake.clear()
                began = runner.pass_began = self._clock()
                rest: Rest | None = Rest(settled=False)
                try:
                    rest = await self._pass.run(*key)
                    failures = 0
                    self.counts.note(_outcome(rest), self._clock() - began)
                except Deposed as deposed:  # told once, by whoever keeps the lease
                    failures += 1
                    self.counts.note("deposed", self._clock() - began)
                    logger.debug("%s/%s: %s", *key, deposed)
                except Exception as error:
                    failures += 1
                    self.counts.note("failed", self._clock() - began)
                    logger.warning("%s/%s: will try again: %r", *key, error)
                    if failures > 1:
                        await self._tell_failure(key, error)
                finally:
                    self._gate.leave()
                    runner.pass_began, runner.is_new = None, False
                if rest is None and not runner.wake.is_set():
                    return
                settled = rest is not None and rest.settled
                seconds = self._delay(settled, failures, idle)
                if rest is not None and rest.wake_seconds is not None:
                    seconds = min(seconds, max(rest.wake_seconds, GATHER_SECONDS))
                acted = rest is not None and rest.acted
                woken = await self._wait(runner, GATHER_SECONDS if acted else seconds)
                idle = 0 if woken or settled or acted else idle + 1
        finally:
            if self._runners.get(key) is runner:
                del self._runners[key]

    async def _tell_failure(self, key: Key, error: Exception) -> None:
        try:
            await self._pass.tell_failure(*key, error)
        except Exception as why:
            logger.warning("%s/%s: its status cannot say that passes fail: %r", *key, why)

    def _delay(self, settled: bool, failures: int, idle: int) -> float:
        """A resource that stays unsettled without any event is looked at ever less often."""
        if failures:
            longest = min(self._tempo.backoff_max_seconds, 2.0 ** min(failures - 1, 10))
            # Resources that failed together, for the API server was away, do not come back so.
            return longest * (0.5 + 0.5 * random.random())  # noqa: S311 - no secret
        if settled:
            return self._tempo.resync_seconds
        growing = self._tempo.unsettled_seconds * 1.2 ** min(idle, 40)
        return float(min(self._tempo.resync_seconds, growing))

    async def _wait(self, runner: _Runner, seconds: float) -> bool:
        """Whether an event ended the wait."""
        try:
            async with asyncio.timeout(seconds):
                await runner.wake.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(GATHER_SECONDS)
        return True


def _outcome(rest: Rest | None) -> PassOutcome:
    if rest is None:
        return "gone"
    return "settled" if rest.settled else "unsettled"
