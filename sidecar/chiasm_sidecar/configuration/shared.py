"""Keeps a source that is read as it is: delivered as files, or a kv secret of the server.

Its value is what all pods share, and is taken when the operator allows it; or it is a lease that
somebody else renews, an agent, and is taken at once.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from chiasm_contract.configuration import ConfigSource

from chiasm_sidecar.configuration import delivered
from chiasm_sidecar.configuration.current import Generation, Record
from chiasm_sidecar.configuration.decide import Share, may_take, share
from chiasm_sidecar.configuration.keeper import Keeper, Surroundings
from chiasm_sidecar.configuration.offers import Entries, Offer, digest, of_kind, taken
from chiasm_sidecar.configuration.vault.faults import VaultFault
from chiasm_sidecar.configuration.vault.server import VaultServer
from chiasm_sidecar.configuration.vault.session import Session

log = logging.getLogger("chiasm.sidecar.configuration")


class SharedKeeper(Keeper):
    """Looks again and again."""

    def __init__(
        self,
        source: ConfigSource,
        path: Path,
        around: Surroundings,
        server: VaultServer | None,
    ) -> None:
        super().__init__(source, path, around)
        self._server = server
        self._session: Session | None = None
        self._log_in_again_at = 0.0
        self._check_at = 0.0
        self._try_restart_at = 0.0
        self._restart_refused: str | None = None
        self._looked_at = float("-inf")
        self._offer: Offer | None = None

    async def turn(self) -> float:
        """Read the source, and take what may be taken."""
        asked, now = self.asked, self.around.clock()
        pace = self.around.pace
        ask_again = pace.ask * (1 - pace.jitter * self.around.chance())
        is_due = self._server is None or now >= self._looked_at + ask_again
        if self._ask_at <= now and (is_due or asked != self.followed or self._ask_at == 0.0):
            self._offer = await self._read()
            self._looked_at, self._ask_at = now, now
            self._answered()
            self.followed = asked
        if self._offer is not None:
            await self._consider(self._offer)
        return pace.look * (1 - pace.jitter * self.around.chance())

    async def _consider(self, offer: Offer) -> None:
        first = None if self.generation is None else self.generation.entries
        await self._consider_taking(first, offer)
        await self._consider_restart(self._restart(first, offer.entries), offer)

    async def _consider_restart(self, wanted: str | None, offer: Offer) -> None:
        """Ask to be replaced, but only for what works: new pods would begin without it."""
        around, name = self.around, self.source.name
        if wanted is None:
            self.restart = self._restart_refused = None
        elif wanted != self.restart and around.clock() >= self._try_restart_at:
            trial = self.current.stage(offer.entries, Record(id=offer.id))
            try:
                proof = await self._prove(trial)
            finally:
                self.current.remove(trial)
            proved = proof.outcome == "proved"
            self.restart = wanted if proved else None
            if not proved and proof.words != self._restart_refused:
                fields = {"source": name, "id": offer.id, "why": proof.words}
                log.warning("pods are not replaced for a value", extra={"fields": fields})
            self._restart_refused = None if proved else proof.words
            self._try_restart_at = 0.0 if proved else around.clock() + around.pace.check
        if self._restart_refused is not None:
            self.refused = self._restart_refused
            around.meters.refused(name, True)

    async def _consider_taking(self, first: Entries | None, offer: Offer) -> None:
        entries = taken(self.source, first, offer.entries)
        in_use = self.generation
        if in_use is not None and entries == in_use.entries:
            # Nothing that a running pod takes is another: the value is synced, unless the pod is to
            # be replaced for the rest of it.
            restart = self._restart(in_use.entries, offer.entries)
            if in_use.record.id != offer.id and restart is None:
                record = in_use.record.model_copy(update={"id": offer.id})
                self.generation = self.current.note(in_use, record)
            self._discard()
            return
        self.offered = offer.id
        match share(None if in_use is None else in_use.record.id, offer.id, self._allowed(offer)):
            case Share.PROVE:
                await self._try(offer, entries)
            case Share.DOUBT if in_use is not None:
                self._discard_but(offer.id)
                await self._doubt(in_use, offer, entries)
            case _:
                self._discard()

    async def _doubt(self, in_use: Generation, offer: Offer, entries: Entries) -> None:
        now = self.around.clock()
        if now < self._check_at:
            return
        self._check_at = now + self.around.pace.check
        if (await self._prove(in_use, writes=False)).outcome == "refused":
            await self._try(offer, entries)

    def _allowed(self, offer: Offer) -> bool:
        if self.around.approvals is None or self.source.leased:
            return True
        return may_take(self.around.approval(self.source.name), offer.id, self.around.pod)

    async def _try(self, offer: Offer, entries: Entries) -> None:
        self._discard_but(offer.id)
        if self.candidate is None:
            self.candidate = self.current.stage(entries, Record(id=offer.id))
            self._prove_at = 0.0
        if self.around.clock() >= self._prove_at:
            await self._try_candidate(self.candidate)

    def _discard_but(self, offered: str) -> None:
        if self.candidate is not None and self.candidate.record.id != offered:
            self._discard()
            self.offered = offered

    def _discard(self) -> None:
        if self.candidate is not None:
            self.current.remove(self.candidate)
        self._forget_candidate()

    def _restart(self, first: Entries | None, offered: Entries) -> str | None:
        """The id of what needs a restart, if the pod has another."""
        if first is None:
            return None
        wanted = of_kind(self.source, offered, "restart")
        if wanted == of_kind(self.source, first, "restart"):
            return None
        return digest(self.around.digest_key(), wanted)

    async def _read(self) -> Offer:
        if self._server is not None:
            return await self._ask(self._server)
        entries = delivered.read(self.source)
        if not self.source.leased:
            return Offer(digest(self.around.digest_key(), entries), entries)
        # A digest of it would tell pods' leases apart for nobody; its number is enough.
        in_use = self.generation
        if in_use is not None and entries == in_use.entries:
            return Offer(in_use.record.id, entries)
        if self._offer is not None and entries == self._offer.entries:
            return self._offer
        return Offer(f"lease-{self.current.last_number + 1}", entries)

    async def _ask(self, server: VaultServer) -> Offer:
        """Read the kv secret; where the token is refused, with a new one, once."""
        now = self.around.clock()
        if self._session is not None and now >= self._log_in_again_at:
            await self._log_out()
        if self._session is not None:
            try:
                return await self._session.kv(self.source)
            except VaultFault as fault:
                if fault.kind != "denied":
                    raise
            await self._log_out()
        self._session = await server.log_in()
        self._log_in_again_at = now + self._session.token_seconds * 2 / 3
        return await self._session.kv(self.source)

    async def _log_out(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.revoke()
            except VaultFault:
                pass  # It ends by itself.
            finally:
                session.close()

    async def finish(self) -> None:
        """Give the token back."""
        await super().finish()
        async with asyncio.timeout(self.around.pace.end):
            await self._log_out()
