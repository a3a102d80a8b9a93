"""`chiasm doctor`: what pods say, as a table, and what the command ends with."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from chiasm_cli.main import app
from chiasm_contract.checkup import CHECKS, CHECKUP_PATH, CheckupReport, Finding, Look
from typer.testing import CliRunner, Result

from tests.sidecar.conftest import Pod, StartPod

KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
said = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([said, sys.stdin.read()]) + "\\n")
answers = json.loads((folder / "answers").read_text())
for name, answer in answers.items():
    if name in " ".join(said):
        print(json.dumps(answer))
        sys.exit()
sys.exit("Error from server (NotFound): nothing there")
"""
LEAK = Finding(
    check="pool", severity="critical", what="4 blocks outlive the requests that they were for.",
    where="4 held by no request", how_bad="16384 bytes", what_to_do="Restart the worker.",
)  # fmt: skip
WELL = CheckupReport(looks=tuple(Look(check=check, words="read") for check in CHECKS), seconds=1.25)
ILL = WELL.model_copy(update={"findings": (LEAK,)})
BLIND = CheckupReport(looks=(Look(check="drift", taken=False, words="others come first"),))


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


@pytest.fixture
async def pod(start_pod: StartPod) -> Pod:
    return await start_pod()


async def seen(pod: Pod, *arguments: str) -> Result:
    return await asyncio.to_thread(doctor, "--url", pod.metrics_url, *arguments)


async def test_a_sound_pod_ends_with_0(pod: Pod) -> None:
    pod.worker.checkup = CheckupReport(looks=WELL.looks[:4])
    ended = await seen(pod)
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert lines[0].startswith(f"{pod.metrics_url}: looked at in ")
    assert [line.split()[:2] for line in lines[2:9]] == [[check, "well"] for check in CHECKS]
    assert lines[-1] == "Nothing is wrong."


async def test_a_finding_says_what_where_how_bad_and_what_to_do(pod: Pod) -> None:
    pod.worker.checkup = ILL.model_copy(update={"looks": WELL.looks[:4]})
    ended = await seen(pod)
    assert ended.exit_code == 1
    assert "  pool       critical    read" in ended.stdout
    assert "  CRITICAL  pool: blocks outlive their requests" in ended.stdout
    for word, text in (
        ("what", LEAK.what), ("where", LEAK.where), ("how bad", LEAK.how_bad),
        ("what to do", LEAK.what_to_do),
    ):  # fmt: skip
        assert f"    {word:<11}{text}" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "1 finding."


async def test_what_could_not_be_seen_ends_with_2(pod: Pod) -> None:
    pod.worker.checkup = BLIND
    ended = await seen(pod)
    assert ended.exit_code == 2
    assert "  drift      not seen    others come first" in ended.stdout
    assert "not everything could be looked at" in ended.stdout


async def test_the_report_as_json(pod: Pod) -> None:
    pod.worker.checkup = ILL
    ended = await seen(pod, "--json")
    assert ended.exit_code == 1
    told = CheckupReport.model_validate(json.loads(ended.stdout)[pod.metrics_url])
    assert told.findings == (LEAK,)


async def test_the_wrong_port_is_named(pod: Pod) -> None:
    ended = await asyncio.to_thread(doctor, "--url", pod.url)
    assert ended.exit_code == 2
    assert (
        "answered 404 to /-/checkup; is it a pod's port of metrics and state (9100 by default)"
        in ended.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--url", "http://127.0.0.1:1"), "nothing answers at http://127.0.0.1:1"),
        (("--url", "ftp://here"), "'ftp://here' is not an address"),
        (("--url", "http://here:no"), "is not an address"),
        (("--url", "http://127.0.0.1:1", "--mmi", "a"), "give one"),
        (("--context", "prod"), "name it with --mmi"),
    ],
)
def test_what_cannot_be_asked_ends_with_2(arguments: tuple[str, ...], words: str) -> None:
    ended = doctor(*arguments)
    assert ended.exit_code == 2
    assert words in ended.stderr


class Cluster:
    """The folder behind the kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        metadata = {"name": "shelf", "namespace": "vision"}
        self.answers: dict[str, Any] = {"get multimodalinferences": {"metadata": metadata}}

    def pods(self, **reports: CheckupReport | None) -> None:
        items = []
        for name, report in reports.items():
            metadata = {"name": name, "namespace": "vision"}
            items.append({"metadata": metadata, "status": {"phase": "Running"}})
            if report is not None:
                path = f"/api/v1/namespaces/vision/pods/{name}:9100/proxy{CHECKUP_PATH}"
                self.answers[f"create --raw {path} "] = report.model_dump()
        items.append({"metadata": {"name": "gone"}, "status": {"phase": "Succeeded"}})
        self.answers["get pods"] = {"items": items}

    def doctor(self, *arguments: str) -> Result:
        (self.folder / "answers").write_text(json.dumps(self.answers))
        return doctor("--mmi", "shelf", *arguments)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return Cluster(tmp_path)


def test_all_running_pods_of_a_resource_are_looked_at(cluster: Cluster) -> None:
    cluster.pods(one=WELL, two=ILL)
    ended = cluster.doctor("-n", "vision", "--context", "lab")
    assert ended.exit_code == 1, ended.output
    assert "one: looked at in 1.2 s" in ended.stdout
    assert "two: looked at in 1.2 s" in ended.stdout
    calls = [json.loads(line) for line in (cluster.folder / "calls").read_text().splitlines()]
    assert all("--context=lab" in said for said, _ in calls)
    posts = [(said, given) for said, given in calls if "create" in said]
    assert len(posts) == 2
    assert all("--filename=-" in said and given == "" for said, given in posts)


def test_sound_pods_end_with_0_and_one_that_cannot_be_asked_with_2(cluster: Cluster) -> None:
    cluster.pods(one=WELL, two=WELL)
    assert cluster.doctor().exit_code == 0
    cluster.pods(one=WELL, away=None)
    ended = cluster.doctor()
    assert ended.exit_code == 2
    assert "away: cannot be looked at: kubectl: Error from server (NotFound)" in ended.stdout


def test_a_resource_without_running_pods_ends_with_2(cluster: Cluster) -> None:
    cluster.pods()
    ended = cluster.doctor()
    assert ended.exit_code == 2
    assert "no pod of shelf runs" in ended.stderr


def test_a_resource_that_is_not_there_ends_with_2(cluster: Cluster) -> None:
    cluster.answers.clear()
    assert cluster.doctor().exit_code == 2


@pytest.mark.parametrize("name", ["", "-A", "--all-namespaces", "a/b", "Shelf"])
def test_what_is_no_name_is_not_taken_for_something_else(cluster: Cluster, name: str) -> None:
    """An unset variable was the port of this machine, and -A any resource of the cluster."""
    ended = doctor(f"--mmi={name}")
    assert ended.exit_code == 2
    assert f"{name!r} is no name of a MultimodalInference" in ended.stderr
    assert not (cluster.folder / "calls").exists()


def test_an_address_that_is_empty_is_none() -> None:
    ended = doctor("--url", "")
    assert ended.exit_code == 2
    assert "'' is not an address" in ended.stderr
