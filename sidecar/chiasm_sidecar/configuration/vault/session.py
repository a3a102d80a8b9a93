"""What one token can do. Each lease has a token of its own, whose end is the lease's end.

Must not know: when to ask, what is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

import hvac
import requests
from chiasm_contract.configuration import ConfigSource

from chiasm_sidecar.configuration.delivered import entries_of
from chiasm_sidecar.configuration.offers import Entries, Offer, checked
from chiasm_sidecar.configuration.vault.faults import Kind, VaultFault, fault_of, odd

# Longer than any server grants: what comes back is the most that it does.
LONGEST_SECONDS = 10 * 365 * 86_400
_LISTS = ("ca_chain",)


class Count(Protocol):
    """Told how each request ended; None: well."""

    def __call__(self, fault: Kind | None) -> None:
        """One request has ended."""


@dataclass(frozen=True)
class Credentials:
    """What a role made; no `lease_id`: nothing to renew or to revoke."""

    entries: Entries = field(repr=False)
    lease_id: str | None = field(repr=False)
    seconds: float
    renewable: bool


class Session:
    """Calls with one token; it never appears in a repr or a message."""

    def __init__(
        self, client: hvac.Client, executor: Executor, timeout: float, count: Count
    ) -> None:
        self._client = client
        self._executor = executor
        self._timeout = timeout
        self._count = count
        self._served_at: float | None = None
        self.token_seconds = 0.0
        self.token_renewable = False
        session: requests.Session = client.session
        session.hooks["response"] = [self._note_date]

    @property
    def token(self) -> str:
        """The token, for whoever keeps it."""
        return str(self._client.token)

    def _note_date(self, answer: requests.Response, **_: Any) -> None:
        date = email.utils.parsedate_tz(answer.headers.get("date", ""))
        if date is not None:
            self._served_at = email.utils.mktime_tz(date)

    async def log_in(self, path: str, role: str, jwt: str, mount: str) -> None:
        """Get a token by Kubernetes auth.

        Raises: VaultFault.
        """
        answer = await self._call(
            path,
            lambda: self._client.auth.kubernetes.login(
                role, jwt, use_token=False, mount_point=mount
            ),
        )
        with _form(path):
            self._client.token = str(answer["auth"]["client_token"])
            self.token_seconds = float(answer["auth"]["lease_duration"])
            self.token_renewable = bool(answer["auth"]["renewable"])

    async def kv(self, source: ConfigSource) -> Offer:
        """The newest version of a kv secret.

        Raises: VaultFault; SourceFault when it has no entries that can be files.
        """
        path = f"{source.mount}/data/{source.entry}"
        answer = await self._call(
            path,
            lambda: self._client.secrets.kv.v2.read_secret_version(
                source.entry, mount_point=source.mount, raise_on_deleted_version=True
            ),
        )
        with _form(path):
            data, known = answer["data"]["data"], answer["data"]["metadata"]
            # Versions of a secret that is made anew begin at 1 again.
            made = hashlib.sha256(str(known["created_time"]).encode()).hexdigest()[:8]
            number = f"v{int(known['version'])}-{made}"
        return Offer(number, checked(entries_of(data, path)))

    async def credentials(self, source: ConfigSource) -> Credentials:
        """What the role of a database, rabbitmq or pki engine makes for us.

        Raises: VaultFault.
        """
        engines = self._client.secrets
        if source.kind == "pki":
            return await self._certificate(source)
        path = f"{source.mount}/creds/{source.entry}"
        engine = engines.database if source.kind == "database" else engines.rabbitmq
        answer = await self._call(
            path, lambda: engine.generate_credentials(source.entry, mount_point=source.mount)
        )
        with _form(path):
            return Credentials(
                checked(entries_of(answer["data"], path)),
                answer["lease_id"] or None,
                float(answer["lease_duration"]),
                bool(answer["renewable"]),
            )

    async def _certificate(self, source: ConfigSource) -> Credentials:
        path = f"{source.mount}/issue/{source.entry}"
        ttl = source.ttl_seconds
        answer = await self._call(
            path,
            lambda: self._client.secrets.pki.generate_certificate(
                source.entry,
                source.common_name,
                extra_params={} if ttl is None else {"ttl": f"{ttl}s"},
                mount_point=source.mount,
            ),
        )
        with _form(path):
            data = dict(answer["data"])
            # By the server's clock on both sides: ours may be wrong.
            seconds = float(data.pop("expiration")) - (self._served_at or 0.0)
            for name in _LISTS:
                if isinstance(data.get(name), list):
                    data[name] = "\n".join(data[name])
            return Credentials(
                checked(entries_of(data, path)), answer["lease_id"] or None, seconds, False
            )

    async def token_period(self) -> float:
        """Of a token that lives as long as it is renewed in time; 0 of any other.

        Raises: VaultFault.
        """
        path = "auth/token/lookup-self"
        answer = await self._call(path, self._client.auth.token.lookup_self)
        with _form(path):
            data = answer["data"]
            return 0.0 if data.get("explicit_max_ttl") else float(data.get("period") or 0)

    async def renew_token(self, seconds: int) -> float:
        """How long the token lives now.

        Raises: VaultFault.
        """
        path = "auth/token/renew-self"
        answer = await self._call(path, lambda: self._client.auth.token.renew_self(f"{seconds}s"))
        with _form(path):
            return float(answer["auth"]["lease_duration"])

    async def renew_lease(self, lease_id: str, seconds: int) -> float:
        """How long the lease lives now.

        Raises: VaultFault.
        """
        path = "sys/leases/renew"
        answer = await self._call(path, lambda: self._client.sys.renew_lease(lease_id, seconds))
        with _form(path):
            return float(answer["lease_duration"])

    async def revoke(self) -> None:
        """End the token, and with it all that was made by it.

        Raises: VaultFault, but not for a token that is gone already.
        """
        try:
            await self._call("auth/token/revoke-self", self._client.auth.token.revoke_self)
        except VaultFault as fault:
            if fault.kind != "denied":
                raise

    def close(self) -> None:
        """Close the connections."""
        self._client.session.close()

    async def _call(self, path: str, request: Callable[[], Any]) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            # Twice the time of a socket: a server that says a little again and again is slow too.
            async with asyncio.timeout(2 * self._timeout):
                answer = await loop.run_in_executor(self._executor, request)
        except TimeoutError:
            fault = VaultFault("slow", f"no answer in time for {path}")
        except Exception as error:
            fault = fault_of(error, path)
        else:
            if isinstance(answer, Mapping):
                self._count(None)
                return answer
            if isinstance(answer, requests.Response) and answer.status_code == 204:
                self._count(None)
                return {}
            fault = odd(path)
        self._count(fault.kind)
        # Outside of the handlers: what was raised there quotes the server, and is not kept.
        raise fault


@contextlib.contextmanager
def _form(path: str) -> Iterator[None]:
    """An answer of another form is a fault of the server."""
    try:
        yield
        return
    except (KeyError, TypeError, ValueError):
        pass
    raise odd(path) from None
