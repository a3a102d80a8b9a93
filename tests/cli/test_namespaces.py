"""`chiasm namespaces`, with a kubectl that answers from a file and notes what it is told."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from chiasm_cli.errors import CliError
from chiasm_cli.main import app
from chiasm_cli.namespaces import Pod, Row, lines, retiring, rows, size
from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.messages import HeldNamespace, HeldNamespaces
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

COMPUTE, REPR, SCOPE, OTHER = ("c" * 16, "d" * 16, "e" * 16, "f" * 16)
SERVED = f"{COMPUTE}-{REPR}"

KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
said = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(said) + "\\n")
answers = json.loads((folder / "answers").read_text())
words = " ".join(word for word in said if not word.startswith("--") or word == "--raw")
if "patch" in said and "refused" in answers:
    sys.exit("Error from server (Conflict): " + answers["refused"])
for name, answer in answers.items():
    if words.startswith(name):
        print(json.dumps(answer))
        sys.exit()
if "patch" not in said:
    sys.exit("Error from server (NotFound): nothing there for " + words)
"""


def resource(name: str = "shelf-reader", *retired: str, **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "vision", "resourceVersion": "7"},
        "spec": {
            "model": {"source": {"builtin": "demo"}},
            "tiers": {"host": {"maxBytes": "1Gi"}, "retiredNamespaces": list(retired)},
        },
        "status": {
            "identity": {
                "revision": "v1-new",
                "computeFingerprint": COMPUTE * 4,
                "reprFingerprint": REPR * 4,
            }
        },
        **changes,
    }


def pod(name: str, revision: str) -> dict[str, Any]:
    labels = {"chiasm.dev/revision": revision}
    metadata = {"name": name, "namespace": "vision", "labels": labels}
    return {"metadata": metadata, "status": {"phase": "Running"}}


def held(name: str, state: Any, **tier_bytes: int) -> HeldNamespace:
    return HeldNamespace(name=name, state=state, tier_bytes=tier_bytes)


class Cluster:
    """The folder behind the kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, Any] = {"get pods": {"items": []}}

    def namespaces(self, *arguments: str) -> Result:
        (self.folder / "answers").write_text(json.dumps(self.answers))
        return CliRunner().invoke(app, ["namespaces", *arguments])

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def patch(self) -> dict[str, Any]:
        (call,) = [call for call in self.calls if "patch" in call]
        (words,) = [word for word in call if word.startswith("--patch=")]
        patch: dict[str, Any] = json.loads(words.removeprefix("--patch="))
        return patch


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    made = Cluster(tmp_path)
    made.answers["get multimodalinferences.chiasm.dev"] = {"items": [resource()]}
    return made


def test_list_shows_state_revision_pods_and_bytes(cluster: Cluster) -> None:
    listed = {"items": [resource("shelf-reader", OTHER)]}
    cluster.answers["get multimodalinferences.chiasm.dev"] = listed
    cluster.answers["get pods"] = {
        "items": [pod("a", "v1-new"), pod("b", "v1-new"), pod("away", "v1-new")]
    }
    said = HeldNamespaces(
        namespaces=(held(SERVED, "live", host=2**20, disk=2**30), held(OTHER, "swept"))
    )
    for name in ("a", "b"):
        path = f"get --raw /api/v1/namespaces/vision/pods/{name}:9100/proxy/namespaces"
        cluster.answers[path] = said.model_dump()
    ended = cluster.namespaces("list", "-n", "vision", "--context", "lab")
    assert ended.exit_code == 0, ended.output
    assert [line.split(maxsplit=5) for line in ended.stdout.splitlines()] == [
        ["NAMESPACE", "STATE", "RESOURCE", "REVISION", "PODS", "BYTES"],
        [SERVED, "live", "shelf-reader", "v1-new", "2", "disk 2.0 GiB, host 2.0 MiB"],
        [OTHER, "retired", "shelf-reader", "-", "2", "-"],
    ]
    assert all("--context=lab" in call for call in cluster.calls)
    selector = "--selector=chiasm.dev/name=shelf-reader"
    assert any(selector in call and "--namespace=vision" in call for call in cluster.calls)


def test_what_no_pod_has_heard_of_is_retired_with_unknown_bytes() -> None:
    (row,) = rows(resource("shelf-reader", OTHER, status={}), [Pod("v1-new", None)])
    assert (row.state, row.num_pods, row.revisions) == ("retired", 0, set())
    assert list(lines([row]))[1].split() == [OTHER, "retired", "shelf-reader", "-", "0", "unknown"]


def test_a_namespace_is_as_far_as_the_pod_that_is_least_far() -> None:
    pods = [
        Pod("v1-new", HeldNamespaces(namespaces=(held(OTHER, "draining", host=1),))),
        Pod("v1-old", HeldNamespaces(namespaces=(held(OTHER, "live", host=2, disk=4),))),
    ]
    (row,) = rows(resource(status={}), pods)
    assert (row.state, row.revisions, row.num_pods) == ("live", {"v1-old"}, 2)
    assert row.tier_bytes == Counter(host=3, disk=4)
    swept = [Pod("r", HeldNamespaces(namespaces=(held(OTHER, s),))) for s in ("swept", "retired")]
    assert rows(resource(status={}), swept)[0].state == "retired"


def test_an_empty_cluster_is_said_to_be_so(cluster: Cluster) -> None:
    assert "nothing is retired" in cluster.namespaces("list").stdout


def test_retire_adds_to_the_list_as_it_was_looked_at(cluster: Cluster) -> None:
    listed = {"items": [resource("shelf-reader", SCOPE)]}
    cluster.answers["get multimodalinferences.chiasm.dev"] = listed
    ended = cluster.namespaces("retire", OTHER)
    assert ended.exit_code == 0, ended.output
    assert "no way back" in ended.stdout.lower()
    assert cluster.patch() == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"tiers": {"retiredNamespaces": [SCOPE, OTHER]}},
    }
    patched = {**resource()["spec"], **cluster.patch()["spec"]}
    patched["tiers"] = {**resource()["spec"]["tiers"], **patched["tiers"]}
    assert Spec.model_validate(patched).tiers is not None


def test_what_is_retired_already_is_left(cluster: Cluster) -> None:
    listed = {"items": [resource("shelf-reader", OTHER)]}
    cluster.answers["get multimodalinferences.chiasm.dev"] = listed
    ended = cluster.namespaces("retire", OTHER)
    assert "retired in shelf-reader already" in ended.stdout
    assert not any("patch" in call for call in cluster.calls)


@pytest.mark.parametrize("name", [COMPUTE, SERVED, f"{SERVED}-{SCOPE}"])
def test_what_is_served_takes_a_word_more(name: str) -> None:
    with pytest.raises(CliError, match=f"shelf-reader serves {SERVED} now.*--served"):
        retiring(resource(), [], name, served=False)
    patch = retiring(resource(), [], name, served=True)
    assert patch is not None
    assert patch["spec"]["tiers"]["retiredNamespaces"] == [name]


def test_what_the_other_revision_serves_takes_a_word_more_too() -> None:
    stable = Pod("v1-old", HeldNamespaces(namespaces=(held(OTHER, "live", host=1),)))
    with pytest.raises(CliError, match=f"shelf-reader serves {OTHER} now.*--served"):
        retiring(resource(), [stable], OTHER, served=False)
    assert retiring(resource(), [stable], OTHER, served=True) is not None
    drained = Pod("v1-old", HeldNamespaces(namespaces=(held(OTHER, "draining", host=1),)))
    assert retiring(resource(), [drained], OTHER, served=False) is not None


def test_one_pod_that_has_swept_says_nothing_of_those_that_have_not_heard() -> None:
    heard = Pod("r", HeldNamespaces(namespaces=(held(OTHER, "swept"),)))
    for other in (Pod("r", None), Pod("r", HeldNamespaces(namespaces=()))):
        (row,) = rows(resource("shelf-reader", OTHER, status={}), [heard, other])
        assert row.state == "retired"
    (row,) = rows(resource("shelf-reader", OTHER, status={}), [heard, heard])
    assert row.state == "swept"


Fault = Callable[[Cluster], None]


def _several(cluster: Cluster) -> None:
    both = {"items": [resource("one"), resource("two")]}
    cluster.answers["get multimodalinferences.chiasm.dev"] = both


def _none(cluster: Cluster) -> None:
    cluster.answers["get multimodalinferences.chiasm.dev"] = {"items": []}


def _no_tiers(cluster: Cluster) -> None:
    cluster.answers["get multimodalinferences.chiasm.dev"] = resource(spec={})


def _changed(cluster: Cluster) -> None:
    cluster.answers["refused"] = "the object has been modified"


def _full(cluster: Cluster) -> None:
    ended = [f"{number:016x}" for number in range(256)]
    listed = resource("shelf-reader", *ended)
    cluster.answers["get multimodalinferences.chiasm.dev"] = listed


@pytest.mark.parametrize(
    ("arrange", "name", "words"),
    [
        (lambda _: None, "XYZ", "'XYZ' is no namespace; give 16 lower-case hex digits"),
        (_several, OTHER, "Name one with --resource; there are: one, two."),
        (_none, OTHER, "There is no MultimodalInference in this namespace"),
        (_no_tiers, OTHER, "shelf-reader has no spec.tiers"),
        (_changed, OTHER, "kubectl: Error from server (Conflict): the object has been modified"),
        (_full, OTHER, "lists 256 retired namespaces, and no more are allowed"),
    ],
)
def test_faults_are_sentences(cluster: Cluster, arrange: Fault, name: str, words: str) -> None:
    arrange(cluster)
    ended = cluster.namespaces("retire", name)
    assert isinstance(ended.exception, CliError)
    assert words in str(ended.exception)


def test_without_kubectl_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = CliRunner().invoke(app, ["namespaces", "list"])
    assert isinstance(ended.exception, CliError)
    assert "no kubectl on the PATH can be run" in str(ended.exception)


@given(st.integers(min_value=0, max_value=2**60))
def test_sizes_are_short(num_bytes: int) -> None:
    assert len(size(num_bytes)) <= len("1048576.0 TiB")
    row = Row("r", OTHER, tier_bytes=Counter(host=num_bytes), num_pods=1)
    cells: Mapping[str, str] = dict(enumerate(list(lines([row]))[1].split(maxsplit=5)))  # type: ignore[arg-type]
    assert len(cells) == 6
