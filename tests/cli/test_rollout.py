"""`chiasm rollout`: what it prints, what it asks of kubectl, and how it ends when it cannot."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from chiasm_cli import rollout
from chiasm_cli.errors import CliError

from tests.cli.test_main import chiasm

RESOURCE: dict[str, Any] = {
    "metadata": {"name": "reader", "resourceVersion": "42"},
    "spec": {
        "model": {"source": {"builtin": "demo"}},
        "engine": {"maxNumSeqs": 3},
        "replicas": 4,
        "autoscaling": {"minReplicas": 2},
        "gateway": {"hostnames": ["reader.example.com"]},
        "rollout": {"maxSurge": 2, "drainSeconds": 9, "steps": [{"setWeight": 5}, {"pause": {}}]},
    },
    "status": {
        "phase": "Paused",
        "revision": "v1-b",
        "ready": "1/4",
        "replicas": 5,
        "rollout": {
            "state": "Paused",
            "message": "Step 2: until rollout-action: resume.",
            "stableRevision": "v1-a",
            "canaryRevision": "v1-b",
            "weight": "5",
            "currentStep": 1,
        },
    },
}


def record(number: int, revision: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": {"chiasm.dev/revision": revision},
            "creationTimestamp": f"2026-01-0{number}T00:00:00Z",
        },
        "revision": number,
        "data": {
            "spec": {"model": {"source": {"builtin": "demo"}}, **spec},
            "images": {"worker": "w:1"},
        },
    }


RECORDS = [
    record(3, "v1-b", engine={"maxNumSeqs": 3}, rollout={"drainSeconds": 9}),
    record(1, "v1-0"),
    record(2, "v1-a", engine={"maxNumSeqs": 2}),
]


@pytest.fixture
def fake_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers like kubectl and notes its arguments."""
    log = tmp_path / "arguments"
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        f"with open({str(log)!r}, 'a') as log: log.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "if 'nobody' in sys.argv: sys.exit('Error from server (NotFound): no such thing')\n"
        "kind = sys.argv[sys.argv.index('get') + 1] if 'get' in sys.argv else ''\n"
        f"answers = {{'multimodalinferences.chiasm.dev': {json.dumps(RESOURCE)!r}, "
        f"'controllerrevisions.apps': {json.dumps({'items': RECORDS})!r}}}\n"
        "if kind: print(answers[kind])\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    return log


def asked(log: Path) -> list[list[str]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_status(fake_kubectl: Path) -> None:
    ended = chiasm("rollout", "status", "reader")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == (
        "Phase:    Paused\n"
        "State:    Paused: Step 2: until rollout-action: resume.\n"
        "Stable:   v1-a\n"
        "Canary:   v1-b\n"
        "Weight:   5 %\n"
        "Step:     1 of 2 done\n"
        "Pods:     1/4 of v1-b ready, 5 in all\n"
    )


def test_history(fake_kubectl: Path) -> None:
    ended = chiasm("rollout", "history", "reader", "-n", "vision")
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert lines[0] == ["NUMBER", "REVISION", "CREATED", "ROLE", "CHANGED"]
    assert lines[1][:2] == ["1", "v1-0"]
    assert lines[2][3:] == ["stable", "spec.engine.maxNumSeqs"]
    assert lines[3][3:] == ["canary", "spec.engine.maxNumSeqs,", "spec.rollout.drainSeconds"]
    assert all("--namespace=vision" in arguments for arguments in asked(fake_kubectl))


@pytest.mark.parametrize("verb", ["promote", "abort", "pause", "resume", "retry"])
def test_an_action_names_its_revision(verb: str, fake_kubectl: Path) -> None:
    ended = chiasm("rollout", verb, "reader")
    assert ended.returncode == 0, ended.stderr
    *before, annotation, last = asked(fake_kubectl)[-1]
    assert [*before, last] == [
        "annotate", "multimodalinferences.chiasm.dev", "reader", "--overwrite",
    ]  # fmt: skip
    key, _, value = annotation.partition("=")
    assert key == "chiasm.dev/rollout-action"
    assert value.startswith(f"{verb}:v1-b:")


def test_the_same_action_is_another_one_when_it_is_asked_again(fake_kubectl: Path) -> None:
    for _ in range(2):
        assert chiasm("rollout", "resume", "reader").returncode == 0
    values = [arguments[-2] for arguments in asked(fake_kubectl) if arguments[0] == "annotate"]
    assert len(set(values)) == 2


def test_undo_writes_what_serves(fake_kubectl: Path) -> None:
    ended = chiasm("rollout", "undo", "reader")
    assert ended.stdout == "reader goes back to revision v1-a (number 2).\n"
    (patch,) = (part for part in asked(fake_kubectl)[-1] if part.startswith("--patch="))
    test, replace = json.loads(patch.removeprefix("--patch="))
    assert test == {"op": "test", "path": "/metadata/resourceVersion", "value": "42"}
    assert replace["value"] == {
        "model": {"source": {"builtin": "demo"}},
        "engine": {"maxNumSeqs": 2},
        "replicas": 4,
        "autoscaling": {"minReplicas": 2},
        "gateway": {"hostnames": ["reader.example.com"]},
        "rollout": {"maxSurge": 2, "steps": [{"setWeight": 5}, {"pause": {}}]},
    }


def test_undo_of_what_is_rolled_out_is_the_one_before() -> None:
    done = {"state": "Idle", "message": "", "stableRevision": "v1-b", "canaryRevision": ""}
    resource = {**RESOURCE, "status": {"revision": "v1-b", "rollout": done}}
    assert rollout.chosen(resource, RECORDS, 0)["revision"] == 2
    assert rollout.chosen(resource, RECORDS, 1)["revision"] == 1
    with pytest.raises(CliError, match="no revision number 9; there are: 1, 2, 3"):
        rollout.chosen(resource, RECORDS, 9)
    with pytest.raises(CliError, match="no earlier revision"):
        rollout.chosen(resource, RECORDS[:1], 0)


def test_namespaces_that_are_retired_now_stay_retired() -> None:
    now = {**RESOURCE["spec"], "tiers": {"retiredNamespaces": ["0123456789abcdef"]}}
    before = {"model": {}, "tiers": {"host": {"maxBytes": "1Gi"}}}
    assert rollout.restored(now, before)["tiers"] == {
        "host": {"maxBytes": "1Gi"},
        "retiredNamespaces": ["0123456789abcdef"],
    }
    assert "tiers" not in rollout.restored(now, {"model": {}})


def test_undo_brings_an_environment_back_beside_the_others() -> None:
    staging, prod = {"name": "staging", "weight": 0}, {"name": "prod", "weight": 5}
    now = {"model": {}, "config": {"environment": "prod", "environments": [staging, prod]}}
    images = {"worker": "worker:1"}
    before = {
        "model": {},
        "config": {
            "logLevel": "debug",
            "environment": "prod",
            "environments": [{"name": "prod", "images": images}],
        },
    }
    assert rollout.restored(now, before)["config"] == {
        "logLevel": "debug",
        "environment": "prod",
        "environments": [staging, {"name": "prod", "images": images, "weight": 5}],
    }
    gone = {"model": {}, "config": {"environment": "lab", "environments": [{"name": "lab"}]}}
    assert rollout.restored(now, gone)["config"] == {
        "environment": "lab", "environments": [staging, prod, {"name": "lab"}],
    }  # fmt: skip
    assert rollout.restored(now, {"model": {}}) == {"model": {}}, "there was none"


def test_a_deleted_record_cannot_be_restored() -> None:
    with pytest.raises(CliError, match="its record was deleted"):
        rollout.restored(RESOURCE["spec"], {})


def test_kubectls_own_words_are_passed_on(fake_kubectl: Path) -> None:
    ended = chiasm("rollout", "status", "nobody")
    assert ended.returncode == 1
    assert ended.stderr == "chiasm: kubectl: Error from server (NotFound): no such thing\n"


def test_without_a_rollout_there_is_nothing_to_do() -> None:
    class Idle(rollout.Kubectl):
        def get(self, *what: str) -> list[Any]:
            return [{"metadata": {"name": what[1]}, "status": {"rollout": {"canaryRevision": ""}}}]

    with pytest.raises(CliError, match="has no rollout under way that could be told to abort"):
        rollout._act("reader", "abort", Idle())
