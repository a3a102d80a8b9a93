"""Records in a Valkey (or Redis 7) that replicas share: each has a time to live, and all together a
bound.

    PREFIX:kv:NAMESPACE:KEY          one record
    PREFIX:kv:NAMESPACE:manifest     what the namespace was, for people
    PREFIX:retired:NAMESPACE-PREFIX  a tombstone, without a time to live

Records come and go by scripts (scripts.py), which Valkey runs whole or not at all: nothing
is written past a tombstone however late the writer, two writers of one key leave one record, and no
number of writers gets past the bound. Tombstones and the index must not be evicted, so
`maxmemory-policy` has to be one of the volatile-* (or noeviction).

One primary; a cluster would need all keys of a namespace in one slot. Credentials change while it
serves (clients.py), and none of its words carry them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import Header, Holding, record_bytes
from chiasm_contract.block_wire import Tier as Place
from chiasm_contract.tiers import ValkeyTier as ValkeySettings
from redis.exceptions import RedisError, ResponseError

from chiasm_sidecar.kv.namespaces import Namespace, prefixes
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.valkey.clients import Clients

_VERDICTS: Mapping[bytes, Verdict] = {
    b"kept": USE,
    b"stored": Verdict(Outcome.MISS, "stored"),
    b"retired": Verdict(Outcome.MISS, "retired"),
    b"conflict": Verdict(Outcome.QUARANTINE, "conflict"),
    b"busy": Verdict(Outcome.MISS, "busy"),
}

# What the server needs around a record: its name, four entries of the index.
OVERHEAD_BYTES = 768
# How many records go for one at most; after a bound was lowered the next writes go on.
_MAX_GONE = 64

_SCAN_PAUSE_SECONDS = 0.01
# What a proof writes is under this name, and gone at once.
_PROOF = "proof"
_PROOF_TTL_SECONDS = 10
_FAULTS = (RedisError, OSError, EOFError)  # OSError: time-outs and what TLS says too


class ValkeyTier:
    """A client of one server."""

    place = Place.VALKEY

    def __init__(self, settings: ValkeySettings, namespace_share: float = 1.0) -> None:
        self._max_bytes = settings.max_bytes
        self._share_bytes = int(settings.max_bytes * namespace_share)
        self._prefix = settings.key_prefix
        self._ttl_seconds = settings.ttl_seconds
        self._clients = Clients(settings)
        self._cursors: dict[str, int] = {}

    def _record(self, name: str, key: bytes) -> str:
        return f"{self._prefix}:kv:{name}:{key.hex()}"

    def _tombstones(self, name: str) -> list[str]:
        return [f"{self._prefix}:retired:{prefix}" for prefix in prefixes(name)]

    async def open(self) -> None:
        """Read the credentials; connections are made when they are needed.

        Raises: TierFailed when credentials cannot be read.
        """
        self._clients.renew()

    def reload(self) -> None:
        """Take the credentials that lie there now; those that cannot be read are so next time."""
        with contextlib.suppress(TierFailed):
            self._clients.renew()

    async def released(self) -> None:
        """Return once nothing runs on earlier credentials, and no connection has them."""
        await self._clients.released()

    async def prove(self, writes: bool) -> None:
        """Use the credentials once as records do: read, `writes`: write a small record, remove it.

        Raises: TierFailed with the kind of fault; its cause is the client's.
        """
        key = secrets.token_hex(16)
        record = f"{self._prefix}:kv:{_PROOF}:{key}"
        described = f"{self._prefix}:kv:{_PROOF}:manifest"
        limits = [_PROOF_TTL_SECONDS, self._max_bytes, self._share_bytes, OVERHEAD_BYTES, _MAX_GONE]
        try:
            async with self._clients.use() as client:
                await client.redis.getrange(record, 0, 0)
                if writes:
                    await client.put(
                        keys=[record, described, *self._tombstones(_PROOF)],
                        args=[self._prefix, _PROOF, key, b"proof", b"{}", *limits],
                    )
                gone = [f"{_PROOF}:{key}", f"{_PROOF}:manifest"]
                await client.remove(keys=[], args=[self._prefix, *gone])
        except _FAULTS as error:
            raise _failed(error) from error

    async def get_many(self, namespace: Namespace, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """All records in one round trip; never more of a value than a record has."""
        last = record_bytes(namespace.shape.payload_bytes)
        try:
            async with self._clients.use() as client:
                pipe = client.redis.pipeline(transaction=False)
                pipe.exists(*self._tombstones(namespace.name))
                for key in keys:
                    pipe.getrange(self._record(namespace.name, key), 0, last)
                retired, *values = await pipe.execute(raise_on_error=False)
        except _FAULTS as error:
            raise _failed(error) from error
        if isinstance(retired, Exception):
            raise _failed(retired) from retired
        return [None if retired else _value(value) for value in values]

    async def put(self, namespace: Namespace, header: Header, record: bytes) -> Verdict:
        """Write a record, unless there is one or the namespace is retired."""
        name = namespace.name
        described = f"{self._prefix}:kv:{name}:manifest"
        keys = [self._record(name, header.block_key), described, *self._tombstones(name)]
        arguments: list[str | bytes | int] = [
            self._prefix,
            name,
            header.block_key.hex(),
            record,
            namespace.manifest,
            self._ttl_seconds,
            self._max_bytes,
            self._share_bytes,
            OVERHEAD_BYTES,
            _MAX_GONE,
        ]
        try:
            async with self._clients.use() as client:
                return _VERDICTS[await client.put(keys=keys, args=arguments)]
        except _FAULTS as error:
            raise _failed(error) from error

    async def drop(self, namespace: Namespace, key: bytes) -> None:
        """Remove a record."""
        await self._forget([f"{namespace.name}:{key.hex()}"])

    async def retire(self, prefix: str) -> bool:
        """Set the tombstone."""
        return bool(await self._do("SET", f"{self._prefix}:retired:{prefix}", "retired", "NX"))

    def tombstones(self) -> Iterable[str]:
        """Whoever set one up sweeps."""
        return ()

    async def sweep(self, prefix: str, max_records: int) -> int:
        """Look through a part of all keys, and remove those under the prefix."""
        pattern = f"{self._prefix}:kv:{prefix}[-:]*"
        start = cursor = self._cursors.pop(prefix, 0)
        num_removed = 0
        while num_removed < max_records:
            cursor, names = await self._do("SCAN", cursor, "MATCH", pattern, "COUNT", max_records)
            if names:
                begin = len(f"{self._prefix}:kv:")
                await self._forget([found[begin:] for found in names])
            num_removed += len(names)
            if int(cursor) == 0:
                if num_removed or start == 0:
                    return num_removed
                start = 0  # what was added behind us before the tombstone stood
            # Others share the server, and most of what is looked through is theirs.
            await asyncio.sleep(_SCAN_PAUSE_SECONDS)
        self._cursors[prefix] = cursor
        return num_removed

    async def close(self) -> None:
        """Close all connections."""
        await self._clients.close()

    def touch(self, namespace: Namespace, keys: Iterable[bytes]) -> None:
        """What goes first is what was written first."""

    def drain(self, namespaces: frozenset[str]) -> None:
        """Other replicas may serve them; they end by their time to live."""

    def bytes_by_namespace(self) -> Mapping[str, int]:
        """The server's own, which we do not count."""
        return {}

    def bytes_by_holding(self) -> Mapping[Holding, int]:
        """The server's own, which we do not count."""
        return {}

    async def _forget(self, records: Sequence[str | bytes]) -> None:
        """Remove these NAMESPACE:KEY and their entries."""
        try:
            async with self._clients.use() as client:
                await client.remove(keys=[], args=[self._prefix, *records])
        except _FAULTS as error:
            raise _failed(error) from error

    async def _do(self, *command: object) -> Any:
        try:
            async with self._clients.use() as client:
                return await client.redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except _FAULTS as error:
            raise _failed(error) from error


def _value(value: object) -> bytes | None:
    if isinstance(value, bytes):
        return value or None
    if isinstance(value, ResponseError) and "WRONGTYPE" in str(value):
        return None
    raise _failed(value) from (value if isinstance(value, Exception) else None)


def _failed(error: object) -> TierFailed:
    """The kind of fault only: messages may name hosts and users."""
    return TierFailed(f"valkey: {type(error).__name__}")
