"""Who is let in, what the worker is told of them, and what of them is written down."""

from __future__ import annotations

import json
import logging
from typing import Any

import openai
import pytest
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.logs import JsonFormatter
from chiasm_contract.tenants import TenantKeys
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.tenants.gate import Caller, Gate
from chiasm_sidecar.tenants.keys import key_ring
from starlette.datastructures import Headers

from tests.sidecar.conftest import Pod, StartPod, question
from tests.sidecar.tenants.conftest import (
    ACME,
    GLOBEX,
    SERVER_KEY,
    MountedSecret,
    no_file_can_be_opened,
)

RING = key_ring({"acme": ACME, "globex": GLOBEX}, SERVER_KEY.encode())


def scope_of(key: str) -> str:
    tenant = RING.find(key)
    assert tenant is not None
    return tenant.scope_fp


async def asked(pod: Pod, **headers: str) -> tuple[int, Any, str | None]:
    """Status, the error's code, and the scope that the worker was told."""
    before = len(pod.worker.requests)
    status, answer = await pod.chat(question(), **headers)
    told = pod.worker.requests[before:]
    return status, answer.get("error", {}).get("code"), told[0][0].scope_fp if told else None


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_the_worker_is_told_the_scope_of_the_key(
    start_pod: StartPod, paths: TenantKeys
) -> None:
    pod = await start_pod(tenants=paths)
    assert await asked(pod, **bearer(ACME)) == (200, None, scope_of(ACME))
    assert await asked(pod, Authorization=f"bearer   {GLOBEX}") == (200, None, scope_of(GLOBEX))
    head, _ = pod.worker.requests[-1]
    assert "globex" not in head.model_dump_json(), "the worker learns no name"


@pytest.mark.parametrize(
    "value",
    ["Bearer wrong-key-0123456789", "Bearer ", "Bearer", "", f"Basic {ACME}", ACME, "Bearer none"],
)
@pytest.mark.parametrize("required", [True, False])
async def test_a_wrong_key_is_always_401(
    value: str, required: bool, start_pod: StartPod, paths: TenantKeys
) -> None:
    pod = await start_pod(tenants=paths.model_copy(update={"required": required}))
    assert await asked(pod, Authorization=value) == (401, "invalid_api_key", None)


async def test_no_key_is_401_where_one_is_required(start_pod: StartPod, paths: TenantKeys) -> None:
    pod = await start_pod(tenants=paths)
    assert await asked(pod) == (401, "missing_api_key", None)
    optional = await start_pod(tenants=paths.model_copy(update={"required": False}))
    assert await asked(optional) == (200, None, SHARED_SCOPE_FP)


async def test_without_tenants_a_key_says_nothing(pod: Pod) -> None:
    assert await asked(pod, **bearer("anything")) == (200, None, SHARED_SCOPE_FP)
    assert await asked(pod) == (200, None, SHARED_SCOPE_FP)


def test_two_authorizations_are_one_too_many(paths: TenantKeys) -> None:
    gate = Gate(paths, Metrics("demo"))
    twice = [(b"authorization", f"Bearer {key}".encode()) for key in (ACME, GLOBEX)]
    with pytest.raises(Exception, match="API key is wrong"):
        gate.caller(Headers(raw=twice))
    assert gate.caller(Headers(raw=twice[:1])) == Caller("acme", scope_of(ACME))


async def test_openais_client_reads_the_refusal(start_pod: StartPod, paths: TenantKeys) -> None:
    pod = await start_pod(tenants=paths)
    wrong = "wrong-key-0123456789"
    async with pod.client() as client:
        mine = client.with_options(api_key=ACME)
        assert [model.id async for model in mine.models.list()] == ["demo"]
        other = client.with_options(api_key=wrong)
        for asking in (other.models.list(), other.chat.completions.create(**question())):
            with pytest.raises(openai.AuthenticationError) as refused:
                await asking
            assert refused.value.code == "invalid_api_key"
            assert refused.value.type == "invalid_request_error"
            assert refused.value.response.headers["www-authenticate"] == "Bearer"
            assert wrong not in refused.value.response.text


async def test_every_path_of_the_api_asks_for_the_key_and_no_other_does(
    start_pod: StartPod, paths: TenantKeys
) -> None:
    pod = await start_pod(tenants=paths)
    for path, status in (
        ("/v1/models", 401), ("/v1/models/demo", 401), ("/health", 200), ("/ready", 200),
    ):  # fmt: skip
        async with pod.http.get(pod.url + path) as answer:
            assert answer.status == status, path
        async with pod.http.get(pod.url + path, headers=bearer(ACME)) as answer:
            assert answer.status == 200, path


async def test_a_body_without_a_key_is_not_read(start_pod: StartPod, paths: TenantKeys) -> None:
    pod = await start_pod(tenants=paths)
    assert (await pod.chat(b"{" * 10_000))[0] == 401
    assert await pod.metric("chiasm_sidecar_request_body_bytes_count") == 0
    assert await pod.metric('chiasm_sidecar_requests_total{code="401",modality="unknown"}') == 1


async def test_keys_change_without_a_restart(
    start_pod: StartPod, paths: TenantKeys, keys: MountedSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chiasm_sidecar.tenants.gate._INTERVAL_SECONDS", 0.01)
    pod = await start_pod(tenants=paths)
    loads = 'chiasm_sidecar_tenant_key_loads_total{{outcome="{}"}}'
    assert await asked(pod, **bearer(ACME)) == (200, None, scope_of(ACME))
    fresh = "acme-second-key-0123"
    keys.change(acme=f"{fresh}\n{ACME}")
    await _until_loaded(pod, loads.format("taken"), 2)
    for key in (fresh, ACME):
        assert await asked(pod, **bearer(key)) == (200, None, scope_of(ACME))
    assert (await asked(pod, **bearer(GLOBEX)))[0] == 401
    keys.change(acme=fresh, globex="too short")
    await _until_loaded(pod, loads.format("refused"), 1)
    assert (await asked(pod, **bearer(ACME)))[0] == 200, "what was usable stays in force"
    assert pod.sidecar.readiness.state.ready
    keys.change(acme=fresh)
    await _until_loaded(pod, loads.format("taken"), 3)
    assert (await asked(pod, **bearer(ACME)))[0] == 401


def test_keys_that_could_not_be_opened_once_are_read_again(
    paths: TenantKeys, keys: MountedSecret
) -> None:
    metrics = Metrics("demo")
    gate = Gate(paths, metrics)
    for number in (1, 2):
        fresh = f"acme-other-key-000{number}"
        keys.change(acme=fresh)
        with no_file_can_be_opened():
            for _ in range(3):
                gate.refresh()
        refused = metrics.total("chiasm_sidecar_tenant_key_loads_total", outcome="refused")
        assert refused == number, "said once"
        gate.refresh()
        asking = Headers({"authorization": f"Bearer {fresh}"})
        assert gate.caller(asking).tenant == "acme", "the same files"


async def _until_loaded(pod: Pod, metric: str, count: int) -> None:
    from tests.sidecar.conftest import until

    async def loaded() -> bool:
        return await pod.metric(metric) == count

    await until(loaded)


async def test_a_pod_whose_keys_cannot_be_used_is_not_ready_until_they_can(
    start_pod: StartPod, paths: TenantKeys, keys: MountedSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chiasm_sidecar.tenants.gate._INTERVAL_SECONDS", 0.01)
    keys.change(acme="short-secret")
    pod = await start_pod(wait_for="TenantKeysRefused", tenants=paths)
    assert "short-secret" not in pod.sidecar.readiness.state.message
    assert "Tenant 'acme'" in pod.sidecar.readiness.state.message
    state = await pod.until("TenantKeysRefused")
    assert "acme" not in state["message"], "what anybody may read names no tenant"
    assert (await asked(pod, **bearer(ACME)))[:2] == (503, "not_ready")
    keys.change(acme=ACME)
    await pod.until("Ready")
    assert (await asked(pod, **bearer(ACME)))[0] == 200


async def test_the_access_log_names_the_tenant_and_no_log_a_key(
    start_pod: StartPod, paths: TenantKeys, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pod = await start_pod(tenants=paths, access_log=True)
    await asked(pod, **bearer(ACME))
    await asked(pod, **bearer("wrong-key-0123456789"))
    lines = [JsonFormatter().format(record) for record in caplog.records]
    access = [json.loads(line) for line in lines if '"logger": "chiasm.sidecar.access"' in line]
    assert [line.get("tenant") for line in access] == ["acme", None]
    for secret in (ACME, GLOBEX, SERVER_KEY, "wrong-key"):
        assert not [line for line in lines if secret in line]
    async with pod.http.get(f"{pod.metrics_url}/metrics") as response:
        assert "acme" not in await response.text()


async def test_a_client_cannot_choose_its_scope(start_pod: StartPod, paths: TenantKeys) -> None:
    pod = await start_pod(tenants=paths)
    for field in ("cache_salt", "scope_fp", "mm_processor_kwargs"):
        status, answer = await pod.chat(question(**{field: "x"}), **bearer(ACME))
        assert (status, answer["error"]["param"]) == (400, field)
    assert len(pod.worker.requests) == 1, "the probe alone"
