"""May this pod serve, and if not, why: the one place that decides.

Ready = tenants' keys can be used, the worker is healthy, its identity is the expected one, and the
built-in question has gone through the model, with a picture unless the pod takes none. All are
asked again as long as the process lives; a new incarnation of the worker starts from nothing. A
worker that is slow to answer (one core, a long prefill) is not gone: only `_MAX_SILENT_CHECKS`
silent checks in a row are, while a refused connection counts at once.

Invariant: `admission` is set exactly when `state.ready` is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from dataclasses import dataclass

from chiasm_contract.config import SidecarConfig
from chiasm_contract.errors import ChiasmError, Unavailable
from chiasm_contract.messages import (
    IdentityReport,
    MediaFiles,
    ModelCard,
    PodReason,
    PodState,
)

from chiasm_sidecar.guard import judge
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.probe import probe_request
from chiasm_sidecar.tenants.gate import Gate
from chiasm_sidecar.worker_client import WorkerClient, WorkerGone

log = logging.getLogger("chiasm.sidecar.readiness")

_READY_INTERVAL_SECONDS = 1.0
_WAITING_INTERVAL_SECONDS = 0.25
_FAILED_PROBE_INTERVAL_SECONDS = 5.0
_PROBE_TIMEOUT_SECONDS = 120.0
_MAX_SILENT_CHECKS = 3
_RETRY_AFTER_SECONDS = 2

MODEL_LOAD_FAILED = "model_load_failed"

_PUBLIC_MESSAGES: dict[PodReason, str] = {
    "ModelLoadFailed": "The model could not be loaded; the pod's state says why.",
    "TenantKeysRefused": "The API keys cannot be used; the pod's state says why.",
    "IdentityMismatch": "The model is not the expected one; the pod's state says in what.",
}


@dataclass(frozen=True)
class Admission:
    """What was checked: the worker that requests may go to."""

    identity: IdentityReport
    card: ModelCard


class Readiness:
    """Follows one worker."""

    def __init__(
        self, config: SidecarConfig, worker: WorkerClient, metrics: Metrics, gate: Gate
    ) -> None:
        self._config = config
        self._gate = gate
        self._worker = worker
        self._metrics = metrics
        self._recheck = asyncio.Event()
        self._looked = asyncio.Condition()
        self._incarnation: str | None = None
        self._num_silent_checks = 0
        self.draining = False
        self.admission: Admission | None = None
        self.state = PodState(
            ready=False,
            reason="WorkerStarting",
            message="The worker has not answered yet.",
            model_id=config.model_id,
        )

    def admitted_identity(self) -> IdentityReport | None:
        """That of the admitted worker."""
        return None if self.admission is None else self.admission.identity

    def require(self) -> Admission:
        """The admitted worker.

        Raises: Unavailable with the reason why there is none.
        """
        if self.admission is None:
            raise Unavailable(
                f"This pod is not ready: {self.public_message}",
                code="not_ready",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        return self.admission

    @property
    def public_message(self) -> str:
        """The state's message for clients: without the paths and digests that it may name."""
        return _PUBLIC_MESSAGES.get(self.state.reason, self.state.message)

    @property
    def routable(self) -> bool:
        """What /ready says: like `state.ready`, but false once the process is to end."""
        return self.state.ready and not self.draining

    def drain(self) -> None:
        """Tell everybody who asks to send new requests elsewhere; those that come are served."""
        self.draining = True

    def lack(self, tier_faults: tuple[str, ...]) -> None:
        """Why memory tiers are not open; the pod serves without them, and its state says so."""
        self.state = self.state.model_copy(update={"tier_faults": tier_faults})

    def doubt(self) -> None:
        """Something that needs the worker failed: look at it now, not at the next interval."""
        self._recheck.set()

    async def watch(self) -> None:
        """Check for ever."""
        while True:
            self._recheck.clear()  # What is doubted from here on is looked at once more.
            await self.check()
            async with self._looked:
                self._looked.notify_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval()):
                    await self._recheck.wait()

    def _interval(self) -> float:
        match self.state.reason:
            case "Ready":
                return _READY_INTERVAL_SECONDS
            case "ProbePictureFailed":
                return _FAILED_PROBE_INTERVAL_SECONDS
        return _WAITING_INTERVAL_SECONDS

    async def look_anew(self, found_wrong: Admission) -> None:
        """Return once `watch` has looked at the worker since this admission proved to be wrong."""
        async with self._looked:
            for _ in range(2):  # The first look may have begun before.
                if self.admission is found_wrong:
                    self.doubt()
                    await self._looked.wait()

    async def check(self) -> None:
        """Look at the worker once and update `state`."""
        if self._gate.fault is not None:
            self._set("TenantKeysRefused", self._gate.fault)
            return
        try:
            await self._worker.health()
            identity = await self._worker.identity()
            self._num_silent_checks = 0
            await self._judge(identity)
        except WorkerGone as error:
            self._num_silent_checks += 1
            slow = error.reason == "timeout" and self._num_silent_checks < _MAX_SILENT_CHECKS
            if not (slow and self.state.ready):
                self._not_serving(error)
        except ChiasmError as error:
            self._not_serving(error)
        except Exception:
            # The task that checks is awaited at the end only; ended, it would leave the last state.
            log.exception("a check failed")
            self._set("WorkerUnavailable", "The sidecar failed to check its worker; this is a bug.")

    def _not_serving(self, error: ChiasmError) -> None:
        if error.code == MODEL_LOAD_FAILED:
            self._set("ModelLoadFailed", error.message)
        elif self._incarnation is None:
            self._set("WorkerStarting", error.message)
        else:
            self._set("WorkerUnavailable", error.message)

    async def _judge(self, identity: IdentityReport) -> None:
        if identity.incarnation != self._incarnation:
            if self._incarnation is not None:
                self._metrics.count("chiasm_sidecar_worker_restarts_total")
            self._incarnation = identity.incarnation
            self.admission = None
        verdict = judge(self._config.expected_identity, identity)
        outcome = "admit" if verdict.admitted else "reject"
        self._metrics.count("chiasm_sidecar_identity_checks_total", outcome=outcome)
        if not verdict.admitted:
            self._set("IdentityMismatch", verdict.message, identity)
            return
        if self.admission is not None and self.admission.identity == identity:
            return
        card = await self._worker.model()
        if card.id != self._config.model_id:
            words = f"The worker serves model {card.id!r}, expected {self._config.model_id!r}."
            self._set("IdentityMismatch", words, identity)
            return
        if await self._probe(identity):
            self.admission = Admission(identity, card)
            sent = self._probed_with
            self._set("Ready", f"A {sent} has gone through the model.", identity)

    @property
    def _probed_with(self) -> str:
        return "picture" if self._config.images.max_per_prompt else "question"

    async def _probe(self, identity: IdentityReport) -> bool:
        """Send the built-in question through the model; the state says why when it fails."""
        head, files = probe_request(f"probe-{uuid.uuid4().hex}", self._config.images)
        try:
            async with (
                asyncio.timeout(_PROBE_TIMEOUT_SECONDS),
                self._worker.generate(head, files, identity) as batches,
            ):
                async for _ in batches:
                    pass
        except (ChiasmError, TimeoutError) as error:
            self._count_picture(files, "failed")
            words = error.message if isinstance(error, ChiasmError) else "no answer in time"
            sent = self._probed_with
            self._set("ProbePictureFailed", f"The built-in {sent} got no answer: {words}", identity)
            return False
        self._count_picture(files, "passed")
        return True

    def _count_picture(self, files: MediaFiles, outcome: str) -> None:
        if files.images:
            self._metrics.count("chiasm_sidecar_probe_pictures_total", outcome=outcome)

    def _set(self, reason: PodReason, message: str, identity: IdentityReport | None = None) -> None:
        ready = reason == "Ready"
        if not ready:
            self.admission = None
        self._metrics.ready.set(1 if ready else 0)
        before = self.state
        self.state = PodState(
            ready=ready,
            reason=reason,
            message=message,
            model_id=self._config.model_id,
            identity=identity,
            tier_faults=before.tier_faults,
        )
        if (before.reason, before.message) != (reason, message):
            log.info("pod state", extra={"fields": {"reason": reason, "detail": message}})
