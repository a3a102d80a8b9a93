"""Whether a candidate works: each use really uses it once, before anything depends on it.

    valkey    connect with its user, password and certificate; read, write and remove a record
    tenants   the keys make a ring
    peers     the secret is long enough

The parts' settings name files under CURRENT/<source>/; for a proof those of the candidate take
their place. A source without uses is proved by being there: an empty one is
no offer.

Must not know: where candidates come from.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from chiasm_contract.config import SidecarConfig
from chiasm_contract.configuration import ConfigSource, Use
from chiasm_contract.tenants import TenantKeys
from chiasm_contract.tiers import PeerTier as PeerSettings
from chiasm_contract.tiers import ValkeyTier as ValkeySettings
from pydantic import BaseModel
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError

from chiasm_sidecar.configuration.current import LINK
from chiasm_sidecar.kv.peers.wire import MIN_SECRET_BYTES
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from chiasm_sidecar.tenants import source as tenant_files
from chiasm_sidecar.tenants.keys import KeysRefused, key_ring

M = TypeVar("M", bound=BaseModel)
_WRONG = (AuthenticationError, AuthorizationError, NoPermissionError, ssl.SSLError)
# Over a network to a server that may be busy: longer than a record may take.
_VALKEY_SECONDS = 3.0


@dataclass(frozen=True)
class Proof:
    """Attributes:
    outcome: refused: it is wrong; unclear: that cannot be told now.
    words: why, for people.
    """

    outcome: Literal["proved", "refused", "unclear"]
    words: str = ""


PROVED = Proof("proved")


class Proofs:
    """Proves candidates by the settings of the parts that use them."""

    def __init__(self, config: SidecarConfig, current_path: Path) -> None:
        self._valkey = None if config.tiers is None else config.tiers.valkey
        self._peers = None if config.tiers is None else config.tiers.peers
        self._tenants = config.tenants
        self._current_path = current_path

    async def prove(
        self,
        source: ConfigSource,
        folder: Path,
        candidates: Mapping[str, Path],
        writes: bool = True,
    ) -> Proof:
        """Use what lies in `folder` in the place of the source.

        `candidates` are those of other sources: they count where nothing is in use yet. `writes`:
        something small may be written; what is proved again and again is proved without.
        """
        places = {**candidates, source.name: folder}
        for use in source.uses:
            proof = await self._prove(use, source.name, places, writes)
            if proof != PROVED:
                return proof
        return PROVED

    async def _prove(self, use: Use, name: str, places: Mapping[str, Path], writes: bool) -> Proof:
        match use:
            case "valkey" if self._valkey is not None:
                valkey = self._moved(self._valkey, name, places)
                return _lacking(use, valkey, places[name]) or await _prove_valkey(valkey, writes)
            case "tenants" if self._tenants is not None:
                tenants = self._moved(self._tenants, name, places)
                return _lacking(use, tenants, places[name]) or _prove_tenants(tenants)
            case "peers" if self._peers is not None:
                peers = self._moved(self._peers, name, places)
                return _lacking(use, peers, places[name]) or _prove_peers(peers)
        return PROVED  # no part is configured that would use it

    def _moved(self, settings: M, name: str, places: Mapping[str, Path]) -> M:
        """The settings with the paths of candidates."""
        changes: dict[str, Path] = {}
        for field, path in _paths(settings).items():
            if not path.is_relative_to(self._current_path):
                continue
            owner, *entry = path.relative_to(self._current_path).parts
            in_use = (self._current_path / owner / LINK).exists()
            if owner in places and (owner == name or not in_use):
                changes[field] = places[owner].joinpath(*entry)
        return settings.model_copy(update=changes)


def _paths(settings: BaseModel) -> dict[str, Path]:
    every = {name: getattr(settings, name) for name in type(settings).model_fields}
    return {name: value for name, value in every.items() if isinstance(value, Path)}


def _lacking(use: Use, settings: BaseModel, folder: Path) -> Proof | None:
    """What is said of files that are not there."""
    for path in _paths(settings).values():
        if not path.exists() and path.parent == folder:
            return Proof("refused", f"{use}: there is no entry {path.name!r}")
        if not path.exists():
            return Proof("unclear", f"{use}: {path} is not there yet")
    return None


async def _prove_valkey(settings: ValkeySettings, writes: bool) -> Proof:
    seconds = max(settings.timeout_seconds, _VALKEY_SECONDS)
    tier = ValkeyTier(settings.model_copy(update={"timeout_seconds": seconds}))
    try:
        await tier.prove(writes)
    except TierFailed as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, _WRONG):
                return Proof("refused", str(error))
            cause = cause.__cause__ or cause.__context__
        return Proof("unclear", str(error))
    finally:
        await tier.close()
    return PROVED


def _prove_tenants(keys: TenantKeys) -> Proof:
    try:
        content = tenant_files.read(keys)
        key_ring(content.entries, content.server_key)
    except KeysRefused as error:
        return Proof("refused", f"tenants: {error}")
    return PROVED


def _prove_peers(settings: PeerSettings) -> Proof:
    secret = settings.secret_path.read_bytes().rstrip(b"\r\n")
    if len(secret) < MIN_SECRET_BYTES:
        words = f"peers: the secret has {len(secret)} bytes; it takes {MIN_SECRET_BYTES} or more"
        return Proof("refused", words)
    return PROVED
