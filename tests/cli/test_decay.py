"""`chiasm decay fit`: what it writes and says, and a sentence for what cannot be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chiasm_cli.errors import CliError
from chiasm_cli.main import app
from chiasm_worker.decay import fit
from chiasm_worker.decay.record import Decay, recording_rules
from typer.testing import CliRunner, Result

from tests.cli.test_main import chiasm

SHIPPED = Decay.read(Path(__file__).resolve().parents[2] / "docs" / "decay.json")


def decay(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["decay", "fit", *arguments])


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was asked to be measured; the result is the shipped one."""
    asked: list[tuple[Any, ...]] = []

    def found(*arguments: Any, told: Any) -> Decay:
        told("round 1 of 1")
        asked.append(arguments)
        return SHIPPED

    monkeypatch.setattr(fit, "fit", found)
    return asked


def test_all_that_it_writes(measured: list[tuple[Any, ...]], tmp_path: Path) -> None:
    names = {"--output": "d.json", "--picture": "d.png", "--rules": "d.yaml"}
    options = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    ended = decay("demo", "--repeats", "3", *options)
    assert ended.exit_code == 0, ended.output
    [(folder, name, dtype, repeats)] = measured
    assert (folder.name, name, dtype, repeats) == ("model", "demo", "float32", 3)
    assert Decay.read(tmp_path / "d.json") == SHIPPED
    assert (tmp_path / "d.yaml").read_text() == recording_rules(SHIPPED)
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")
    assert "round 1 of 1" in ended.stderr
    for words in ("power ", "affine ", f"better: {SHIPPED.better}", "drivers: ", "not measured: "):
        assert words in ended.stdout


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("--output", "nowhere/d.json", "there is no folder"),
        ("--rules", ".", "is a folder"),
        ("--picture", "d.txt", "end it in one of"),
        ("--picture", "d", "end it in one of"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(
    measured: list[tuple[Any, ...]], tmp_path: Path, option: str, name: str, words: str
) -> None:
    ended = decay("demo", option, str(tmp_path / name))
    assert isinstance(ended.exception, CliError)
    assert words in str(ended.exception)
    assert measured == []


@pytest.mark.usefixtures("measured")
def test_without_options_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert decay().exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    ended = decay(str(tmp_path))
    assert isinstance(ended.exception, CliError)
    assert "cannot be measured" in str(ended.exception)


def test_a_picture_without_what_draws_it_is_refused_before_anything_is_measured() -> None:
    ended = chiasm("decay", "fit", "demo", "--picture", "x.png", without="matplotlib")
    assert ended.returncode == 1
    assert "run: pip install 'chiasm[dev]'" in ended.stderr
