"""`chiasm trace` against a sidecar on a real port, and through a kubectl that reads a file."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from chiasm_cli.errors import CliError
from chiasm_cli.main import app
from chiasm_cli.trace.command import query
from chiasm_cli.trace.pods import Where, recordings
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from typer.testing import CliRunner, Result

from tests.cli.test_namespaces import KUBECTL
from tests.cli.trace.recorded import whole_pod
from tests.sidecar.conftest import Pod, StartPod, data_url, png, question


async def run(*words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["trace", *words])


async def asked(pod: Pod) -> str:
    status, answer = await pod.chat(question(data_url(png())))
    assert status == 200
    return str(answer["id"])


async def test_a_request_becomes_a_file(start_pod: StartPod, tmp_path: Path) -> None:
    pod = await start_pod()
    answer_id, path = await asked(pod), tmp_path / "out.pftrace"
    result = await run(answer_id, "-o", str(path), "--url", pod.metrics_url)
    assert result.exit_code == 0, result.output
    assert ": 1 request, 0 steps" in result.output
    names = {p.track_descriptor.name for p in protos.Trace.FromString(path.read_bytes()).packet}
    assert {answer_id, "sidecar", "worker"} <= names


async def test_all_of_the_last_seconds(start_pod: StartPod, tmp_path: Path) -> None:
    pod = await start_pod()
    await asked(pod)
    path = tmp_path / "out.pftrace"
    result = await run("--last", "60s", "-o", str(path), "--url", pod.metrics_url)
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 100


async def test_a_moment_in_which_nothing_was_done_is_no_file(
    start_pod: StartPod, tmp_path: Path
) -> None:
    """Perfetto's UI cannot open an empty one."""
    pod, path = await start_pod(), tmp_path / "out.pftrace"
    await pod.worker.stop()
    result = await run("--last", "1ms", "-o", str(path), "--url", pod.metrics_url)
    assert "nothing was done in the last 1ms" in str(result.exception)
    assert not path.exists()


async def test_a_report(start_pod: StartPod) -> None:
    pod = await start_pod()
    result = await run("report", await asked(pod), "--url", pod.metrics_url)
    assert result.exit_code == 0, result.output
    assert "Before the first token" in result.output


async def test_an_unknown_request_is_a_sentence(start_pod: StartPod) -> None:
    pod = await start_pod()
    result = await run("report", "nobody", "--url", pod.metrics_url)
    assert isinstance(result.exception, CliError)
    assert "No request of that name is known here" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "name one request"),
        (["report", "some", "--last", "60s"], "name one request"),
        (["report", "--last", "1h"], "no time above 0"),
        (["report", "--last", "0s"], "no time above 0"),
        (["report", "--last", "601"], "at most 600s"),
        (["some", "--url", "ftp://there"], "is not an address"),
        (["some", "--url", "http://127.0.0.1:x"], "is not an address"),
        (["some", "--url", "http://127.0.0.1:9"], "nothing answers"),
        (["some", "--url", "http://127.0.0.1:9", "--mmi", "a"], "give one"),
        (["report", "some", "--namespace", "vision"], "name it with --mmi"),
        (["report", "some", "--mmi", ""], "'' is no name of a MultimodalInference"),
        (["report", "some", "--mmi=-A"], "'-A' is no name of a MultimodalInference"),
        (["report", "some", "--url", ""], "'' is not an address"),
    ],
)
async def test_what_can_be_wrong(words: list[str], said: str) -> None:
    result = await run(*words)
    assert isinstance(result.exception, CliError)
    assert said in str(result.exception)


@pytest.mark.parametrize(
    ("last", "seconds"), [("60", "60"), ("60s", "60"), ("2m", "120"), ("500ms", "0.5")]
)
def test_times(last: str, seconds: str) -> None:
    assert query("", last) == {"last_seconds": seconds}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster with two pods of shelf-reader, one of which knows the request."""
    script = tmp_path / "kubectl"
    script.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    pods = [
        {"metadata": {"name": name}, "status": {"phase": phase}}
        for name, phase in (("a", "Running"), ("b", "Running"), ("c", "Pending"))
    ]
    resource = {"metadata": {"name": "shelf-reader", "namespace": "vision"}}
    proxied = "get --raw /api/v1/namespaces/vision/pods/a:9100/proxy/-/timeline?request=r"
    answers = {
        "get multimodalinferences.chiasm.dev shelf-reader": resource,
        "get pods": {"items": pods},
        proxied: json.loads(whole_pod().model_dump_json()),
    }
    (tmp_path / "answers").write_text(json.dumps(answers))
    return tmp_path


def test_all_pods_of_a_resource_are_asked(cluster: Path) -> None:
    found = recordings(Where(mmi="shelf-reader"), {"request": "r"})
    assert found == {"a": whole_pod()}
    calls = (cluster / "calls").read_text()
    assert "b:9100" in calls
    assert "c:9100" not in calls


def test_nobody_knows_the_request(cluster: Path) -> None:
    with pytest.raises(
        CliError, match="none of the 2 pods of shelf-reader knows a request of that"
    ):
        recordings(Where(mmi="shelf-reader"), {"request": "other"})


def test_nobody_can_be_asked(cluster: Path) -> None:
    with pytest.raises(CliError, match=r"no pod of shelf-reader has told .* \(NotFound\)"):
        recordings(Where(mmi="shelf-reader"), {"last_seconds": "60"})


def test_a_pod_that_cannot_be_asked_is_told(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing would look like a pod that did nothing."""
    answers = json.loads((cluster / "answers").read_text())
    proxied, recording = answers.popitem()
    answers[proxied.replace("request=r", "last_seconds=60")] = recording
    (cluster / "answers").write_text(json.dumps(answers))
    assert set(recordings(Where(mmi="shelf-reader"), {"last_seconds": "60"})) == {"a"}
    assert capsys.readouterr().err.startswith("chiasm: b is left out: kubectl: Error from server")
    answers[proxied] = recording
    (cluster / "answers").write_text(json.dumps(answers))
    recordings(Where(mmi="shelf-reader"), {"request": "r"})
    assert capsys.readouterr().err == "", "other pods need not know a request"
