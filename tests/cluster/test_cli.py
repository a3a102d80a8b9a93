from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chiasm_cluster.cli import main, parser


def test_arguments_after_the_name_go_to_kubectl_as_they_are() -> None:
    options = parser().parse_args(["kubectl", "--name", "x", "--", "get", "pods", "--name", "y"])
    assert options.name == "x"
    assert options.arguments[-4:] == ["get", "pods", "--name", "y"]


@pytest.mark.parametrize("command", ["status", "kubeconfig", "programs", "kubectl", "helm"])
def test_without_a_cluster_a_sentence_says_how_to_start_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--name", "never-was"]) == 1
    assert capsys.readouterr().err == (
        "chiasm_cluster: No cluster 'never-was' is up; start it with: "
        "python -m chiasm_cluster up --name never-was\n"
    )


@pytest.mark.parametrize("command", ["up", "down", "status", "kubectl"])
def test_a_name_that_is_no_name_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--name", "../etc"]) == 1
    assert "'../etc' cannot name a cluster" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["up"], ["down"]])
def test_anybody_but_root_is_told_what_to_do(command: list[str], readable_dir: Path) -> None:
    source = Path(sys.modules["chiasm_cluster"].__path__[0]).parent
    starts_as_nobody = (
        "import os, runpy, sys; import chiasm_cluster.cli; os.setuid(65534); "
        "sys.exit(chiasm_cluster.cli.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", starts_as_nobody, *command],
        env={"PYTHONPATH": str(source), "XDG_CACHE_HOME": str(readable_dir)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs root; run the same command with sudo" in done.stderr


def test_an_unknown_image_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["archive", "router", str(tmp_path / "router.tar")]) == 1
    assert "'router' is no image; name one of operator, worker, sidecar" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
