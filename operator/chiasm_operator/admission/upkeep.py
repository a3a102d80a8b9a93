"""Keeps the webhook's keys: looks at the Secret, takes the step that is due, shows and publishes.

Every replica does this by itself, also one that does not lead. They agree because each writes the
Secret only where nobody wrote since it looked, and all show what the Secret holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from cryptography import x509

from chiasm_operator.admission.certificates import Keys, step
from chiasm_operator.admission.server import WebhookServer
from chiasm_operator.own_objects import WebhookObjects, decoded

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
# After a step of our own, of somebody else's, or a failure.
SOON_SECONDS = 2.0
RETRY_SECONDS = 15.0

_ENTRIES = ("ca.crt", "ca.key", "tls.crt", "tls.key")


class KeyUpkeep:
    """One replica's part in it."""

    def __init__(
        self, objects: WebhookObjects, server: WebhookServer, now: Callable[[], datetime]
    ) -> None:
        self._objects = objects
        self._server = server
        self._now = now
        self._complaint = ""

    async def keep(self) -> None:
        """Look for ever; what fails is said once and tried again."""
        while True:
            try:
                again = await self.look()
                self._complaint = ""
            except Exception as error:
                again = RETRY_SECONDS
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    logger.warning("the webhook's keys: will look again: %r", error)
            await asyncio.sleep(again)

    async def look(self) -> float:
        """One look and at most one step; seconds until the next.

        Raises: Refused when an object is not there or may not be touched.
        """
        stored = await self._objects.read_secret()
        version, trusted = await self._objects.read_configuration()
        keys = _keys(decoded(stored))
        published = keys is not None and _holds(trusted, keys.authorities)
        due = step(keys, self._hosts, self._now(), published=published)
        if due is not keys:
            if not await self._objects.write_secret(stored, _data(due)):
                return SOON_SECONDS
            logger.info("the webhook's keys took a step")
        await self._server.show(due)
        if trusted != due.authorities:
            await self._objects.publish(version, due.authorities)
        at_rest = due is keys and trusted == due.authorities
        return LOOK_SECONDS if at_rest else SOON_SECONDS

    @property
    def _hosts(self) -> list[str]:
        return [f"{self._objects.names.service}.{self._objects.names.namespace}.svc"]


def _keys(data: dict[str, bytes]) -> Keys | None:
    if not all(data.get(entry) for entry in _ENTRIES):
        return None
    return Keys(*(data[entry] for entry in _ENTRIES))


def _data(keys: Keys) -> dict[str, bytes]:
    values = (keys.authorities, keys.authority_key, keys.certificate, keys.key)
    return dict(zip(_ENTRIES, values, strict=True))


def _holds(bundle: bytes, authorities: bytes) -> bool:
    """Whether every certificate of `authorities` is in `bundle`."""
    try:
        held = set(x509.load_pem_x509_certificates(bundle))
        return set(x509.load_pem_x509_certificates(authorities)) <= held
    except ValueError:
        return False
