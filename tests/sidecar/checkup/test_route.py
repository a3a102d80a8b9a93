"""POST /-/checkup of a pod: the worker's report and the sidecar's own in one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_contract.checkup import CHECKS, CHECKUP_PATH, CheckupReport, Finding, Look
from chiasm_contract.configuration import ConfigReport, LeaseReport, SourceReport
from chiasm_contract.errors import Unavailable
from chiasm_sidecar.configuration.desk import Desk

from tests.sidecar.conftest import Pod, StartPod

ENGINE = CheckupReport(
    looks=tuple(Look(check=check, words="well") for check in CHECKS[:4]),
    findings=(
        Finding(
            check="pool", severity="critical", what="w", where="x", how_bad="y", what_to_do="z"
        ),
    ),
)


async def look(pod: Pod) -> CheckupReport:
    async with pod.http.post(f"{pod.metrics_url}{CHECKUP_PATH}") as response:
        assert response.status == 200
        return CheckupReport.model_validate_json(await response.text())


async def test_both_parts_are_in_the_report(pod: Pod) -> None:
    pod.worker.checkup = ENGINE
    told = await look(pod)
    assert [each.check for each in told.looks] == list(CHECKS)
    assert told.findings == ENGINE.findings
    assert told.missed == ()


async def test_a_worker_that_cannot_look_is_not_seen(pod: Pod) -> None:
    pod.worker.checkup = Unavailable("The model is being loaded.")
    told = await look(pod)
    assert [each.check for each in told.missed] == list(CHECKS[:4])
    assert all("being loaded" in each.words for each in told.missed)
    assert told.findings == ()


async def test_a_pod_whose_worker_is_gone_says_both(pod: Pod) -> None:
    await pod.worker.stop()
    await pod.until("WorkerUnavailable")
    told = await look(pod)
    assert [finding.check for finding in told.findings] == ["probes"]
    assert {each.check for each in told.missed} == {*CHECKS[:4], "timeouts"}


async def test_a_lease_that_ended_is_found(
    start_pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = LeaseReport(began=1, expires=2, ends=2, ttl_seconds=1, renewable=False)
    source = SourceReport(name="app", leased=True, lease=over, fault="403 for database/creds/app")
    report: Callable[[Any], ConfigReport] = lambda _: ConfigReport(  # noqa: E731
        environment="prod", sources=(source,)
    )
    monkeypatch.setattr(Desk, "report", report)
    [finding] = (await look(await start_pod())).findings
    assert (finding.check, finding.severity, finding.where) == ("leases", "critical", "source app")
    assert "403 for database/creds/app" in finding.how_bad


async def test_many_who_ask_make_one_look(pod: Pod) -> None:
    told = await asyncio.gather(*(look(pod) for _ in range(20)))
    assert pod.worker.num_checkups == 1
    assert len({each.model_dump_json() for each in told}) == 1


async def test_only_a_post_looks(pod: Pod) -> None:
    async with pod.http.get(f"{pod.metrics_url}{CHECKUP_PATH}") as response:
        assert response.status == 405
    async with pod.http.post(f"{pod.url}{CHECKUP_PATH}") as response:
        assert response.status == 404, "clients of the model have no part in it"
    assert pod.worker.num_checkups == 0
