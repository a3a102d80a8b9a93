"""Which plans are followed, and how another one is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_contract.config import SidecarConfig
from chiasm_contract.traffic import Version
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.traffic import source
from chiasm_sidecar.traffic.division import Division
from chiasm_sidecar.traffic.plan import PlanRefused, parse

from tests.sidecar.tenants.conftest import MountedSecret, no_file_can_be_opened
from tests.sidecar.traffic.plans import CANARY, STABLE, plan, without_canary

KEY = "traffic.json"
GUARD = "chiasm_kv_version_check_total"
LOADS = "chiasm_traffic_plan_loads_total"
OTHER = Version(revision="v1-other", address="[fd00::1]:8000")


def test_a_later_plan_follows() -> None:
    first = parse(plan(3).model_dump_json().encode(), None)
    assert parse(plan(4, share=1).model_dump_json().encode(), first).share == 1
    assert parse(first.model_dump_json().encode(), first) == first
    assert parse(plan(4, stable=OTHER).model_dump_json().encode(), first).stable == OTHER


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "malformed"),
        (b"[]", "malformed"),
        (plan(4).model_dump_json().replace('"share":5000', '"share":5.5').encode(), "share"),
        (plan(4).model_dump_json().replace('"share"', '"sharing"').encode(), "sharing"),
        (plan(4, canary=plan().stable).model_dump_json().encode(), "are both revision"),
        (plan(4, canary=None).model_dump_json().encode(), "but no canary"),
        (plan(4, members=("a", "a")).model_dump_json().encode(), "named twice"),
        (
            plan(4, members=("a", "b"), member_addresses=("a:1",)).model_dump_json().encode(),
            "2 members but 1 addresses",
        ),
        (plan(4, member_addresses=("a:0",)).model_dump_json().encode(), "'a:0' is no host:port"),
        (plan(2).model_dump_json().encode(), "Epoch 2 does not follow 3"),
        (plan(3, share=1).model_dump_json().encode(), "Epoch 3 does not follow 3"),
        (
            plan(4, stable=Version(revision=STABLE, address="http://x/"))
            .model_dump_json()
            .encode(),
            "is no host:port",
        ),
        (
            plan(4, stable=Version(revision="", address="x:1")).model_dump_json().encode(),
            "has no name",
        ),
    ],
)
def test_what_cannot_be_followed_is_a_sentence(data: bytes, words: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        parse(data, plan(3))
    assert words in str(refused.value)
    assert str(refused.value).endswith(".")


def division(path: Path, revision: str = STABLE, metrics: Metrics | None = None) -> Division:
    config = SidecarConfig(model_id="demo", revision=revision, traffic_file=path)
    return Division(config, "pod-0", metrics or Metrics("demo"))


def epochs(taken: Division) -> tuple[int, bool]:
    report = taken.report()
    return report.epoch, report.problem is not None


def test_a_mounted_plan_is_followed_as_it_changes(tmp_path: Path) -> None:
    mount = MountedSecret(tmp_path / "traffic")
    sidecar = division(mount.path / KEY)
    assert epochs(sidecar) == (0, False), "no plan yet is no fault"
    mount.change(**{KEY: plan(1).model_dump_json()})
    sidecar.refresh()
    assert epochs(sidecar) == (1, False)
    assert set(sidecar.report().versions) == {STABLE, CANARY}
    for bad in ("{", plan(1, share=7).model_dump_json(), "x" * 2**21):
        mount.change(**{KEY: bad})
        sidecar.refresh()
        assert epochs(sidecar) == (1, True), "the last good one goes on"
    mount.change(**{KEY: without_canary(2).model_dump_json()})
    sidecar.refresh()
    assert epochs(sidecar) == (2, False)
    mount.change()
    sidecar.refresh()
    assert epochs(sidecar) == (2, True)
    assert str(sidecar.report().problem) == f"{mount.path / KEY} is gone."


def test_a_plan_that_could_not_be_opened_once_is_read_again(tmp_path: Path) -> None:
    mount = MountedSecret(tmp_path / "traffic", **{KEY: plan(1).model_dump_json()})
    metrics = Metrics("demo")
    sidecar = division(mount.path / KEY, metrics=metrics)
    mount.change(**{KEY: plan(2).model_dump_json()})
    with no_file_can_be_opened():
        for _ in range(3):
            sidecar.refresh()
    assert epochs(sidecar) == (1, True)
    assert "cannot be read: Too many open files" in str(sidecar.report().problem)
    assert metrics.total(LOADS, outcome="refused") == 1, "said once"
    sidecar.refresh()
    assert epochs(sidecar) == (2, False), "the same file"
    mount.change(**{KEY: "{"})
    for _ in range(3):
        sidecar.refresh()
    mount.change(**{KEY: "{"})
    sidecar.refresh()
    assert metrics.total(LOADS, outcome="refused") == 3, "each file that is refused is said"
    mount.change(**{KEY: plan(3).model_dump_json()})
    with no_file_can_be_opened():
        sidecar.refresh()
    mount.change()
    sidecar.refresh()
    assert str(sidecar.report().problem) == f"{mount.path / KEY} is gone."


def test_what_the_guard_refused_is_told_by_window(tmp_path: Path) -> None:
    mount = MountedSecret(tmp_path / "traffic", **{KEY: plan(1).model_dump_json()})
    metrics = Metrics("demo")

    def judged(number: int, **labels: str) -> None:
        refused = {"tier": "host", "op": "get_kv", "outcome": "reject"}
        metrics.count(GUARD, number, **(refused | labels))

    def told(epoch: int, window: int) -> dict[str, dict[str, int]]:
        mount.change(**{KEY: plan(epoch, window=window).model_dump_json()})
        sidecar.refresh()
        versions = sidecar.report().versions
        return {
            revision: {kind: counts.guard_rejects for kind, counts in version.by_modality.items()}
            for revision, version in versions.items()
        }

    judged(2)
    sidecar = division(mount.path / KEY, metrics=metrics)
    assert told(2, window=1) == {STABLE: {}, CANARY: {}}, "those are from before the plan"
    judged(3)
    judged(1, tier="disk")
    judged(5, outcome="accept")
    judged(7, op="update_kv")
    assert told(3, window=1) == {STABLE: {"unknown": 4}, CANARY: {}}, "the pod's own, in all tiers"
    assert told(4, window=2) == {STABLE: {}, CANARY: {}}, "a new window"
    judged(1)
    assert told(5, window=2) == {STABLE: {"unknown": 1}, CANARY: {}}


def test_a_sidecar_without_a_revision_follows_no_plan(tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.write_text(plan().model_dump_json())
    report = division(path, revision="").report()
    assert report.epoch == 0
    assert report.problem is not None
    assert "names no revision" in report.problem


def test_an_unreadable_plan_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / KEY
    path.mkdir()
    assert source.stamp(path) is not None
    with pytest.raises(PlanRefused, match="cannot be read: Is a directory"):
        source.read(path)
