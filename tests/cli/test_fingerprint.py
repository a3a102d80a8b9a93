"""`chiasm fingerprint`: what it prints, what diff says, and how both end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from chiasm_cli.errors import CliError
from chiasm_cli.main import app
from chiasm_contract.builtin_models import builtin_identity
from chiasm_contract.config import EngineLimits
from chiasm_contract.fingerprint import SHARED_SCOPE_FP
from chiasm_contract.manifest import Manifest
from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.identity import build_identity
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from typer.testing import CliRunner, Result

from tests.cli.test_main import chiasm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (tiny,) = (tiny for tiny in TINY_MODELS if tiny.name == "llava-clip-llama")
    return write_tiny_model(tiny, tmp_path_factory.mktemp("model"))


def fingerprint(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["fingerprint", *map(str, arguments)])


def json_of(*arguments: str | Path) -> Manifest:
    said = fingerprint(*arguments, "--json")
    assert said.exit_code == 0, said.output
    return Manifest.model_validate_json(said.stdout)


def test_it_is_what_a_worker_reports(folder: Path) -> None:
    import torch

    model = load_model(folder, torch.bfloat16, torch.device("cpu"))
    spec = cache_spec(model, EngineLimits(block_size=32))
    reported = build_identity(model, spec, ReferenceAttention.numerics)
    shown = json_of(folder, "--dtype", "bfloat16", "--block-size", "32")
    assert shown == Manifest.of(reported)
    assert shown.scope_fp == SHARED_SCOPE_FP


def test_a_person_reads_every_field_below_its_digest(folder: Path) -> None:
    said = fingerprint(folder)
    manifest = json_of("--dtype", "float32", folder)
    assert said.exit_code == 0
    lines = [line.split(maxsplit=1) for line in said.stdout.splitlines()]
    assert lines[0] == ["compute_fp", manifest.compute_fp]
    shown = {name: value for name, value in lines if not name.endswith("_fp")}
    assert shown == {name: str(value) for name, value in manifest.fields.items()}
    assert said.stderr == "", "no progress bars"


def test_a_builtin_model_is_known_by_its_name() -> None:
    known = builtin_identity("demo", "float32")
    assert known.items() <= json_of("demo").fields.items()


def test_diff_explains_and_ends_with_1(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["text_config"]["rope_parameters"]["rope_theta"] = 1000000.0
    (other / "config.json").write_text(json.dumps(config))
    said = fingerprint("diff", folder, other)
    assert said.exit_code == 1
    assert "compute.position.theta is 10000.0 in A, 1000000.0 in B\n" in said.stdout
    # A file that the command wrote stands for its model.
    recorded = tmp_path / "before.json"
    recorded.write_text(fingerprint(folder, "--json").stdout)
    again = fingerprint("diff", recorded, other)
    assert (again.exit_code, again.stdout) == (1, said.stdout)
    equal = fingerprint("diff", recorded, folder)
    assert equal.exit_code == 0
    assert equal.stdout.startswith("Equal: ")
    sizes = fingerprint("diff", recorded, folder, "--block-size", "8")
    assert (sizes.exit_code, sizes.stdout) == (1, "repr.block_size is 16 in A, 8 in B\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "compute_fp: Field required."),
        ("theta", "Invalid JSON"),
        ('{"compute_fp": "x"}', "compute_fp: String should match pattern"),
    ],
)
def test_trouble_is_neither_equal_nor_different(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    said = fingerprint("diff", path, path)
    assert said.exit_code == 2
    assert f"{path} is not what chiasm fingerprint MODEL --json writes: " in said.stderr
    assert words in said.stderr


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    assert isinstance(fingerprint(tmp_path).exception, CliError)
    (tmp_path / "config.json").write_text("{}")
    failed = fingerprint(tmp_path).exception
    assert isinstance(failed, CliError)
    assert "cannot be loaded" in str(failed)


def test_without_the_worker_it_says_what_to_install() -> None:
    ended = chiasm("fingerprint", "demo", without="torch")
    assert ended.returncode == 1
    assert ended.stderr == (
        "chiasm: chiasm fingerprint needs torch, which is not installed; "
        "run: pip install 'chiasm[worker]'\n"
    )
