"""The server as a pod reaches it: logs in by the token of the pod's ServiceAccount.

The token's file is read for each login, for the kubelet replaces it. Proxies and variables of the
environment are not followed: where the server is, the resource says.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hvac
import requests
from chiasm_contract.configuration import VaultLogin

from chiasm_sidecar.configuration.vault.faults import VaultFault
from chiasm_sidecar.configuration.vault.session import Count, Session


class VaultServer:
    """Makes sessions. Requests run in threads of its own, so that a slow server holds up nothing
    else."""

    def __init__(self, login: VaultLogin, num_threads: int, timeout: float, count: Count) -> None:
        self._login = login
        self._timeout = timeout
        self._count = count
        self._executor = ThreadPoolExecutor(max(1, num_threads), "vault")

    async def log_in(self) -> Session:
        """A new token.

        Raises: VaultFault.
        """
        login = self._login
        try:
            jwt = login.token_path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise VaultFault("denied", f"{login.token_path} cannot be read") from None
        session = self.session("")
        path = f"auth/{login.auth_mount}/login"
        try:
            await session.log_in(path, login.role, jwt, login.auth_mount)
        except VaultFault:
            session.close()
            raise
        return session

    def session(self, token: str) -> Session:
        """For a token that there is already."""
        login = self._login
        connections = requests.Session()
        connections.trust_env = False
        verify: Any = True if login.ca_path is None else str(login.ca_path)
        connections.verify = verify
        client = hvac.Client(
            url=login.address,
            token=token,
            verify=verify,
            timeout=self._timeout,
            # Servers of one cluster hand requests on by themselves; a token goes nowhere else.
            allow_redirects=False,
            session=connections,
            namespace=login.namespace,
        )
        return Session(client, self._executor, self._timeout, self._count)

    def close(self) -> None:
        """Leave threads to end with their requests."""
        self._executor.shutdown(wait=False, cancel_futures=True)
