"""Keeps credentials that the server makes for this pod alone, and ends.

Each lease has a token of its own: revoking that ends the lease. The token is written down before
anything is made by it, so that no end of the process leaves a lease that nobody knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from chiasm_contract.configuration import ConfigSource, LeaseReport

from chiasm_sidecar.configuration.current import Generation, Held, Record
from chiasm_sidecar.configuration.decide import Lease, Leased, Step, next_step, renewed
from chiasm_sidecar.configuration.keeper import Keeper, Surroundings
from chiasm_sidecar.configuration.vault.faults import VaultFault
from chiasm_sidecar.configuration.vault.server import VaultServer
from chiasm_sidecar.configuration.vault.session import LONGEST_SECONDS, Credentials, Session

log = logging.getLogger("chiasm.sidecar.configuration")

# Faults after which the lease is gone, or the token's policies: only another can help.
_LOST = ("denied", "absent", "refused")
_MAX_PROOFS = 3
_MAX_CHECKS = 2


class LeaseKeeper(Keeper):
    """Follows `next_step`."""

    def __init__(
        self, source: ConfigSource, path: Path, around: Surroundings, server: VaultServer
    ) -> None:
        super().__init__(source, path, around)
        self._server = server
        self._lost = False
        self._renew_at = 0.0
        self._make_at = 0.0
        self._num_checks_failed = 0
        self._check_at = 0.0 if source.uses else float("inf")
        if _lease_of(self.generation) is None:
            self.generation = None
            self._settled.clear()
        around.meters.lease_left(source.name, self._seconds_left)

    async def turn(self) -> float:
        """Do what is due; seconds until the next step is."""
        now = self.around.clock()
        if self.asked != self.followed and self.generation is None:
            self.followed = self.asked  # the first one is new anyway
        step, at = next_step(self._view())
        if at > now:
            return at - now
        match step:
            case Step.REPLACE:
                await self._replace()
            case Step.RENEW:
                await self._renew()
            case Step.PROVE:
                await self._try_other()
            case Step.DROP:
                self._drop()
            case Step.CHECK:
                await self._check()
        return 0.0

    async def look(self) -> None:
        """Look now."""
        self._renew_at = 0.0
        await super().look()

    def _view(self) -> Leased:
        return Leased(
            current=_lease_of(self.generation),
            other=_lease_of(self.candidate),
            lost=self._lost,
            asked=self.asked != self.followed,
            replaced=self.source.on_change == "restart",
            ask_at=max(self._ask_at, self._make_at),
            renew_at=self._renew_at,
            prove_at=self._prove_at,
            check_at=self._check_at,
            jitter=self.around.pace.jitter,
        )

    # --- making

    async def _replace(self) -> None:
        session = await self._server.log_in()
        began = self.around.clock()
        number = self.current.last_number + 1
        held = Held(token=session.token, until=began + session.token_seconds)
        record = Record(id=f"lease-{number}", held=held)
        staged = self.current.stage({}, record)
        try:
            made = await session.credentials(self.source)
            lease = await self._measured(session, made, began)
            held = Held(token=session.token, until=lease.ends, lease_id=made.lease_id, lease=lease)
            record = record.model_copy(update={"held": held})
            self.candidate = self.current.fill(staged, made.entries, record)
        except BaseException:
            self._retire(staged)
            raise
        finally:
            session.close()
        self.offered = record.id
        self._answered()

    async def _measured(self, session: Session, made: Credentials, began: float) -> Lease:
        """How long it lives, and how long at most: asked of the server, which is asked for more
        than it gives and then for what it gave."""
        token_seconds, seconds = session.token_seconds, made.seconds
        if made.lease_id is None:
            # A certificate: nothing hangs on the token.
            ends = began + seconds
            return self._drawn(began, ends, ends, seconds, renewable=False)
        renewable = made.renewable and session.token_renewable
        longest, longest_token = seconds, token_seconds
        if session.token_renewable:
            longest_token = await session.renew_token(LONGEST_SECONDS)
            await session.renew_token(int(max(token_seconds, seconds)))
            if await session.token_period():
                longest_token = LONGEST_SECONDS
        if made.renewable:
            longest = await session.renew_lease(made.lease_id, LONGEST_SECONDS)
            await session.renew_lease(made.lease_id, int(seconds))
        expires = began + min(token_seconds, seconds)
        ends = max(expires, began + min(longest, longest_token))
        return self._drawn(began, expires, ends, min(token_seconds, seconds), renewable)

    def _drawn(
        self, began: float, expires: float, ends: float, seconds: float, renewable: bool
    ) -> Lease:
        chance = self.around.chance()
        return Lease(began, began, expires, ends, seconds, renewable, chance)

    async def _try_other(self) -> None:
        candidate = self.candidate
        if candidate is None:
            return
        asked = self.asked
        if await self._try_candidate(candidate):
            self.followed = asked
            self._lost = False
            self._num_checks_failed = 0
            self._check_at = self._next_check()
        elif self._num_proof_faults >= _MAX_PROOFS:
            self._drop()

    def _drop(self) -> None:
        """End a candidate that is no good; another is asked for after the longest pause, which
        nobody shortens: each is a user that the server makes."""
        pace, candidate, refused = self.around.pace, self.candidate, self.refused
        if candidate is None:
            return
        self._forget_candidate()
        self.refused = refused
        self.around.meters.refused(self.source.name, refused is not None)
        self._retire(candidate)
        self._make_at = self.around.clock() + pace.backoff_max * (1 + self.around.chance()) / 2

    # --- keeping

    async def _renew(self) -> None:
        generation = self.generation
        held = None if generation is None else generation.record.held
        if generation is None or held is None or held.lease is None or held.lease_id is None:
            return
        now, lease = self.around.clock(), held.lease
        seconds = int(lease.asked_seconds)
        try:
            async with self._session(held) as session:
                granted = await session.renew_token(seconds)
                granted = min(granted, await session.renew_lease(held.lease_id, seconds))
        except VaultFault as fault:
            self._lost = self._lost or fault.kind in _LOST
            if not self._lost:
                # A pause of its own: to ask for another one in vain must not keep it from this.
                self._renew_at = now + self._pause(self._num_faults + 1)
                raise
            self._log("a lease is lost", why=str(fault))
            return
        changed = held.model_copy(update={"lease": renewed(lease, now, granted)})
        record = generation.record.model_copy(update={"held": changed})
        self.generation = self.current.note(generation, record)
        self._answered()

    async def _check(self) -> None:
        """Use what is in use, as somebody may have taken its rights."""
        if self.generation is None:
            return
        proof = await self._prove(self.generation, writes=False)
        failed = proof.outcome == "refused"
        self._num_checks_failed = self._num_checks_failed + 1 if failed else 0
        self._check_at = self._next_check()
        if self._num_checks_failed >= _MAX_CHECKS and not self._lost:
            self._lost = True
            self._log("a lease is lost", why=proof.words)

    def _next_check(self) -> float:
        pace, around = self.around.pace, self.around
        pause = pace.backoff_first if self._num_checks_failed else pace.check
        return around.clock() + pause * (1 - pace.jitter * around.chance())

    def _log(self, message: str, **fields: str) -> None:
        log.warning(message, extra={"fields": {"source": self.source.name, **fields}})

    @contextlib.asynccontextmanager
    async def _session(self, held: Held) -> AsyncIterator[Session]:
        session = self._server.session(held.token)
        try:
            yield session
        finally:
            session.close()

    # --- ending

    async def _end(self, old: Generation) -> None:
        num_faults = 0
        while not await self._revoked(old):
            num_faults += 1
            await asyncio.sleep(self._pause(num_faults))

    async def _revoked(self, old: Generation) -> bool:
        held = old.record.held
        if held is None:
            return True
        try:
            async with self._session(held) as session:
                await session.revoke()
        except VaultFault as fault:
            if self.around.clock() > held.until:
                return True  # It has ended by itself.
            self._log("an old lease is not revoked yet", id=old.record.id, why=str(fault))
            return False
        return True

    async def finish(self) -> None:
        """Revoke all leases; those that the server does not hear of end by themselves."""
        await super().finish()
        every = self.current.others()
        if self.generation is not None:
            every.append(self.generation)
            self.generation = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.around.pace.end):
                await asyncio.gather(*map(self._finish, every))

    async def _finish(self, generation: Generation) -> None:
        await self._end(generation)
        self.current.remove(generation)

    # --- report

    def _lease(self) -> LeaseReport | None:
        lease = _lease_of(self.generation)
        if lease is None:
            return None
        since = self.around.wall() - self.around.clock()
        return LeaseReport(
            began=since + lease.began,
            expires=since + lease.expires,
            ends=since + lease.ends,
            ttl_seconds=lease.ends - lease.began,
            renewable=lease.renewable,
        )

    def _num_old_leases(self) -> int:
        return len(self._retiring)

    def _seconds_left(self) -> float:
        lease = _lease_of(self.generation)
        return 0.0 if lease is None else max(0.0, lease.expires - self.around.clock())


def _lease_of(generation: Generation | None) -> Lease | None:
    held = None if generation is None else generation.record.held
    return None if held is None else held.lease
