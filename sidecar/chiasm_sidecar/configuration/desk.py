"""All sources of a pod: begun, kept, reloaded, reported and ended.

Consumers are told of changes once they are attached. A start waits a moment for first values, and
goes on without them: what lacks one says so, and has it as soon as it is proved.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from types import TracebackType
from typing import Self

from chiasm_contract.clients import DEFAULTS, ClientSettings
from chiasm_contract.config import SidecarConfig
from chiasm_contract.configuration import Approvals, ConfigReport, ConfigSource, Configuration, Use
from chiasm_contract.ending import end

from chiasm_sidecar.configuration import delivered
from chiasm_sidecar.configuration.delivered import DigestKey
from chiasm_sidecar.configuration.keeper import Consumer, Keeper, Surroundings
from chiasm_sidecar.configuration.leases import LeaseKeeper
from chiasm_sidecar.configuration.meters import ConfigMeters
from chiasm_sidecar.configuration.offers import SourceFault
from chiasm_sidecar.configuration.pace import Pace
from chiasm_sidecar.configuration.proofs import Proofs
from chiasm_sidecar.configuration.shared import SharedKeeper
from chiasm_sidecar.configuration.vault.server import VaultServer
from chiasm_sidecar.metrics import Metrics

log = logging.getLogger("chiasm.sidecar.configuration")

_FOLLOWED = "..followed.json"


class Desk:
    """Keeps the sources while the block runs; without a configuration there are none."""

    def __init__(
        self,
        config: SidecarConfig,
        pod: str,
        metrics: Metrics,
        pace: Pace | None = None,
        clients: ClientSettings = DEFAULTS,
    ) -> None:
        """Raises: OSError when the folder of what is in use cannot be made."""
        self._configuration = config.configuration or Configuration(environment="")
        self._pace = pace or Pace.of(clients)
        self._keepers: list[Keeper] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: VaultServer | None = None
        self._looking = asyncio.Lock()
        self._num_looks = 0
        self._may_look_at = 0.0
        self._followed: str | None = None
        self._approvals_fault: str | None = None
        if config.configuration is None:
            return
        configuration = config.configuration
        meters = ConfigMeters(metrics, configuration, config.revision)
        self._around = Surroundings(
            pod=pod,
            revision=config.revision,
            pace=self._pace,
            proofs=Proofs(config, configuration.current_path),
            meters=meters,
            digest_key=DigestKey(configuration.digest_key_path),
        )
        if configuration.vault is not None:
            num_asked = sum(source.mount is not None for source in configuration.sources)
            self._server = VaultServer(
                configuration.vault, 2 * num_asked, self._pace.server_timeout, meters.asked
            )
        self._keepers = [self._keeper(source) for source in configuration.sources]

    def _keeper(self, source: ConfigSource) -> Keeper:
        path = self._configuration.current_path / source.name
        if self._server is not None and source.kind in ("database", "rabbitmq", "pki"):
            return LeaseKeeper(source, path, self._around, self._server)
        server = self._server if source.kind == "kv" else None
        return SharedKeeper(source, path, self._around, server)

    def attach(self, use: Use, consumer: Consumer) -> None:
        """A part that reads what is in use: it is told of changes from now on."""
        if self._keepers:
            self._around.consumers[use] = consumer

    async def __aenter__(self) -> Self:
        if self._keepers:
            self._begin_following()
            self._tasks = [asyncio.create_task(keeper.run()) for keeper in self._keepers]
            self._tasks.append(asyncio.create_task(self._watch_approvals()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace.start):
                    await asyncio.gather(*(keeper.settled() for keeper in self._keepers))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await end(self._tasks)
        await asyncio.gather(*(keeper.finish() for keeper in self._keepers), return_exceptions=True)
        if self._server is not None:
            self._server.close()

    # --- approvals

    def _begin_following(self) -> None:
        """What was asked for before this pod began is no wish for new credentials."""
        self._around.approvals = self._read_approvals()
        path = self._configuration.current_path / _FOLLOWED
        try:
            self._followed = json.loads(path.read_bytes())
        except (OSError, ValueError):
            self._followed = self._asked()
        for keeper in self._keepers:
            keeper.followed = self._followed
            keeper.asked = self._followed

    def _asked(self) -> str | None:
        return None if self._around.approvals is None else self._around.approvals.asked

    def _read_approvals(self) -> Approvals | None:
        """What the file says; nothing is allowed until it says so."""
        path = self._configuration.approvals_path
        if path is None:
            return None
        try:
            found = delivered.approvals(path)
        except SourceFault as error:
            if str(error) != self._approvals_fault:
                log.warning("no approvals", extra={"fields": {"why": str(error)}})
            self._approvals_fault = str(error)
            return self._around.approvals or Approvals()
        self._approvals_fault = None
        return found

    def _look_at_approvals(self) -> None:
        was = self._around.approvals
        self._around.approvals = now = self._read_approvals()
        if now is None or now == was:
            return
        for keeper in self._keepers:
            if now.asked is not None and now.asked != keeper.asked:
                keeper.ask(now.asked)
            keeper.wake()

    async def _watch_approvals(self) -> None:
        while True:
            await asyncio.sleep(self._pace.look)
            try:
                self._look_at_approvals()
                self._note_followed()
            except Exception as error:
                # The task must go on.
                fields = {"error": type(error).__name__}
                log.error("looking for approvals failed", extra={"fields": fields})

    def _note_followed(self) -> None:
        """Write down what every source has followed, for a restarted container."""
        values = {keeper.followed for keeper in self._keepers}
        if len(values) == 1 and (value := values.pop()) != self._followed:
            self._followed = value
            path = self._configuration.current_path / _FOLLOWED
            path.write_text(json.dumps(value))

    # --- for whoever asks

    async def reload(self) -> ConfigReport:
        """Look at everything now; the report after that, or after a bounded wait.

        Those who ask while a look runs, or soon after one, share the next one: anybody in the
        cluster may ask, and the server must not be asked as often.
        """
        mine = self._num_looks + 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.reload), self._looking:
                if self._num_looks < mine:
                    await asyncio.sleep(self._may_look_at - time.monotonic())
                    self._num_looks += 1
                    self._may_look_at = time.monotonic() + self._pace.between_reloads
                    if self._keepers:
                        self._look_at_approvals()
                        await asyncio.gather(*(keeper.look() for keeper in self._keepers))
                        self._note_followed()
                    for consumer in self._consumers():
                        consumer.reload()
        return self.report()

    def _consumers(self) -> list[Consumer]:
        return list(self._around.consumers.values()) if self._keepers else []

    def report(self) -> ConfigReport:
        """What the pod says of its configuration."""
        return ConfigReport(
            environment=self._configuration.environment,
            asked=self._followed,
            sources=tuple(keeper.report() for keeper in self._keepers),
        )
