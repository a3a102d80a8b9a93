"""Who is asking, from a request's Authorization header: the one place that decides.

Keys that were replaced in the mounted files count within seconds, without a restart. Files that
cannot be used change nothing: the last usable ones stay in force, a line in the log says why, and
`chiasm_sidecar_tenant_key_loads_total{outcome="refused"}` counts them. Until there were usable ones
the pod does not become ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from dataclasses import dataclass

from chiasm_contract.errors import Unauthorized, Unavailable
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.tenants import TenantKeys
from starlette.datastructures import Headers

from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.tenants import source
from chiasm_sidecar.tenants.keys import KeyRing, KeysRefused, key_ring

log = logging.getLogger("chiasm.sidecar.tenants")

_INTERVAL_SECONDS = 2.0


@dataclass(frozen=True)
class Caller:
    """Who asks, and the scope of what is cached for them; no name: nobody said who they are."""

    tenant: str | None
    scope_fp: str


ANONYMOUS = Caller(None, SHARED_SCOPE_FP)


class Gate:
    """Lets callers in by their key; without `keys` everybody is let in, whatever they send."""

    def __init__(self, keys: TenantKeys | None, metrics: Metrics) -> None:
        self._keys = keys
        self._metrics = metrics
        self._ring: KeyRing | None = None
        self._seen: Hashable = None
        self._refusal = ""
        self.refresh()

    @property
    def fault(self) -> str | None:
        """Why nobody can be recognised; None when callers can be."""
        return self._refusal if self._keys is not None and self._ring is None else None

    def caller(self, headers: Headers) -> Caller:
        """Who sent a request with these headers.

        Raises: Unauthorized without a key where one is needed, and for a wrong one everywhere.
        """
        if self._keys is None:
            return ANONYMOUS
        if self._ring is None:
            raise Unavailable("The API keys of this pod cannot be used.", code="not_ready")
        given = headers.getlist("authorization")
        if not given and not self._keys.required:
            return ANONYMOUS
        if not given:
            raise Unauthorized(
                "No API key was sent; send it as the header Authorization: Bearer KEY.",
                code="missing_api_key",
            )
        scheme, _, key = given[0].partition(" ")
        tenant = self._ring.find(key.strip())
        if len(given) > 1 or scheme.lower() != "bearer" or tenant is None:
            raise Unauthorized(
                "The API key is wrong. Send one that is valid here, as the header "
                "Authorization: Bearer KEY."
            )
        return Caller(tenant.name, tenant.scope_fp)

    async def watch(self) -> None:
        """Look for other keys for ever."""
        while self._keys is not None:
            await asyncio.sleep(_INTERVAL_SECONDS)
            try:
                self.refresh()
            except Exception as error:
                # The task must go on; its words might quote what was read.
                fields = {"error": type(error).__name__}
                log.error("looking for other keys failed", extra={"fields": fields})

    def reload(self) -> None:
        """Take what is there now, if it can be used."""
        self.refresh()

    async def released(self) -> None:
        """Keys that were replaced count for nothing once others are taken."""

    def refresh(self) -> None:
        """Take what is mounted now, if it is another thing than before."""
        if self._keys is None:
            return
        seen = source.stamp(self._keys)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            content = source.read(self._keys)
            self._ring = key_ring(content.entries, content.server_key)
        except KeysRefused as error:
            if isinstance(error, source.KeysUnread):
                self._seen = None  # No stamp: they are read again.
                if str(error) == self._refusal:
                    return
            self._refusal = str(error)
            self._loaded("refused")
            log.error("tenants' keys refused", extra={"fields": {"why": str(error)}})
        else:
            self._refusal = ""
            self._loaded("taken")
            log.info("tenants' keys taken", extra={"fields": {"tenants": len(content.entries)}})

    def _loaded(self, outcome: str) -> None:
        self._metrics.count("chiasm_sidecar_tenant_key_loads_total", outcome=outcome)
