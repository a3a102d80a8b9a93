"""What a worker serves: nothing yet, nothing for a reason, or a model, which can be swapped.

A reload reads the model folder anew, beside the model that serves, and then swaps: requests that
run end on the weights that they began with, new ones begin on the new. Until the last of them has
ended both models are in memory, so there is one reload at a time, and none while answers from
before the last one still run. A folder that cannot take the place changes nothing.

Replace the folder's files by renaming others into their place: a model in memory may still be read
from the old ones.

Must not know: HTTP, how anything is computed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from dataclasses import dataclass

from chiasm_contract.checkup import CheckupReport
from chiasm_contract.config import WorkerConfig
from chiasm_contract.errors import InvalidRequest, Overloaded, Unavailable
from chiasm_contract.messages import IdentityReport, ModelCard
from chiasm_contract.shared_work import SharedWork

from chiasm_worker.checkup.checkup import Subject, examine
from chiasm_worker.engine.service import EngineService
from chiasm_worker.generation import Generation, Reading
from chiasm_worker.loading import Loaded, aside, load
from chiasm_worker.tiers.link import Namespace

logger = logging.getLogger(__name__)

_RETRY_AFTER_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Serving:
    """What there is once a model is loaded."""

    card: ModelCard
    identity: IdentityReport
    service: EngineService
    generation: Generation


class WorkerState:
    """Loading, failed or serving."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.incarnation = uuid.uuid4().hex
        self.serving: Serving | None = None
        self.load_failure: str | None = None
        self._is_reloading = False
        self.checkups: SharedWork[CheckupReport] = SharedWork()

    def require(self) -> Serving:
        """What serves.

        Raises: Unavailable saying why nothing does.
        """
        serving = self._loaded()
        if not serving.service.is_healthy:
            raise Unavailable("The engine stopped; the worker must be restarted.")
        return serving

    def _loaded(self) -> Serving:
        """What serves, or did until its engine stopped."""
        if self.load_failure is not None:
            raise Unavailable(self.load_failure, code="model_load_failed")
        if self.serving is None:
            raise Unavailable("The model is being loaded.", code="model_loading")
        return self.serving

    def identity_report(self) -> IdentityReport:
        """The manifest of what serves, with its digests.

        Raises: Unavailable saying why nothing does.
        """
        return self.require().identity

    async def checkup(self) -> CheckupReport:
        """Look at what serves while it serves; who asks while somebody looks has the same report.

        Raises: Unavailable while nothing serves, Overloaded while a reload goes on.
        """
        serving = self._loaded()  # also of a stopped engine there is something to say
        if self._is_reloading:
            raise Overloaded(
                "The model is being reloaded; look again when that is over.",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        subject = Subject(serving.service, serving.generation, serving.identity, self.config.images)
        return await self.checkups.take(functools.partial(examine, subject))

    async def reload(self) -> None:
        """Read the model folder anew and compute new requests with what it holds now.

        Raises: Unavailable while nothing serves, Overloaded while the last reload goes on,
        InvalidRequest when the folder cannot take the place of what serves, which then goes on.
        """
        serving = self.require()
        if self._is_reloading or serving.service.engine.num_models > 1:
            raise Overloaded(
                "The last reload goes on: answers that began before it still run, or the model is "
                "being read. Try again later.",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        self._is_reloading = True
        try:
            loaded = await asyncio.wrap_future(aside(functools.partial(load, self.config)))
            serving.service.engine.check_swap(loaded.model)
            reading = Reading(self.config, self.config.vision, loaded.model)
            await self._swap(serving, loaded, reading)
        except (ValueError, OSError) as error:
            logger.exception("The model folder could not be read anew: %s", error)
            raise InvalidRequest(
                f"The model folder cannot be served now, what served before goes on: {error}",
                code="model_load_failed",
            ) from error
        finally:
            self._is_reloading = False

    async def _swap(self, serving: Serving, loaded: Loaded, reading: Reading) -> None:
        def namespace(engine_gen: int) -> Namespace | None:
            return None if self.config.block_service is None else loaded.namespace(engine_gen)

        service, generation = serving.service, serving.generation
        epoch = await service.swap(loaded.model, loaded.root, namespace)
        generation.use(reading, epoch)
        card = loaded.card(self.config.model_id, service.engine.limits.max_model_len)
        self.serving = Serving(card, loaded.report(self.incarnation), service, generation)
        logger.info("Serving another model since generation %d", epoch.engine_gen)
