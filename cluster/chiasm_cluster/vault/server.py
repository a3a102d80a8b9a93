"""What an administrator does with the OpenBao of a local cluster, over its HTTP API.

Its root token and its unseal key are of a server that lives as long as a test or a demo: they are
kept by this object and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import hvac
from hvac.exceptions import InvalidPath, VaultError
from requests.exceptions import RequestException

_PATIENCE_SECONDS = 120


class Server:
    """A server at `url` that nobody has initialised yet."""

    def __init__(self, url: str) -> None:
        self.client = hvac.Client(url=url, timeout=10)
        self._unseal_key = ""

    def begin(self) -> None:
        """Initialise and unseal it.

        Raises: TimeoutError when it does not answer in two minutes.
        """
        found: dict[str, Any] = self._patiently(lambda: self.client.sys.initialize(1, 1))
        self._unseal_key = found["keys"][0]
        self.client.token = found["root_token"]
        self.unseal()

    def unseal(self) -> None:
        """Open it, behind a restart or a seal."""
        self._patiently(lambda: self.client.sys.submit_unseal_key(self._unseal_key))
        self._patiently(self._lead)

    def _lead(self) -> None:
        # Reads are answered before it leads, and writes are not.
        if not self.client.sys.read_leader_status()["is_self"]:
            raise VaultError("it does not lead yet")
        self.client.auth.token.lookup_self()

    def seal(self) -> None:
        """It answers nobody until it is unsealed."""
        self.client.sys.seal()

    def know_cluster(self) -> None:
        """Pods of its own cluster may log in."""
        self.client.sys.enable_auth_method("kubernetes")
        self.write("auth/kubernetes/config", kubernetes_host="https://kubernetes.default.svc")

    def admit(self, role: str, account: str, namespace: str, policy: str, **more: object) -> None:
        """Pods of a ServiceAccount may log in as `role` and then do what `policy` says."""
        self.client.sys.create_or_update_policy(role, policy)
        said = {
            "bound_service_account_names": [account],
            "bound_service_account_namespaces": [namespace],
            "audience": "vault",
            "token_policies": [role],
            "token_ttl": "10m",
        }
        self.write(f"auth/kubernetes/role/{role}", **{**said, **more})

    def enable(self, engine: str, path: str, **options: object) -> None:
        """Mount an engine."""
        self.client.sys.enable_secrets_engine(engine, path=path, **options)

    def write(self, path: str, **data: object) -> Any:
        """Write to a path."""
        return self.client.write_data(path, data=data)

    def put(self, path: str, **entries: str) -> int:
        """Another version of a kv secret below `secret/`; its number."""
        written = self.client.secrets.kv.v2.create_or_update_secret(path, secret=entries)
        version: int = written["data"]["version"]
        return version

    def leases(self, prefix: str) -> list[str]:
        """The leases below a prefix, such as database/creds/store."""
        try:
            found: list[str] = self.client.sys.list_leases(f"{prefix}/")["data"]["keys"]
        except InvalidPath:
            return []
        return found

    def _patiently(self, act: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return act()
            except (RequestException, VaultError) as error:
                if time.monotonic() > deadline:
                    raise TimeoutError("OpenBao did not answer as it should") from error
            time.sleep(0.3)
