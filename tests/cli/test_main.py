"""The commands: thin, lazy, and a sentence when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (
    "serve", "ask", "decay", "doctor", "fingerprint", "namespaces", "rollout", "version",
    "worker", "sidecar", "operator",
)  # fmt: skip


def chiasm(*arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command, as if the module `without` were not installed."""
    hide = f"sys.modules[{without!r}] = None; " if without else ""
    program = f"import sys; {hide}from chiasm_cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True
    )


def test_help_lists_every_command() -> None:
    ended = chiasm("--help")
    assert ended.returncode == 0
    for command in COMMANDS:
        assert command in ended.stdout


def test_version() -> None:
    assert chiasm("version").stdout == "0.1.0\n"


def test_nothing_heavy_is_imported_for_help() -> None:
    program = (
        "import sys, chiasm_cli.main; "
        "heavy = {'torch', 'transformers', 'fastapi', 'aiohttp', 'kopf', 'PIL'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert ended.stderr.strip() == ""


@pytest.mark.parametrize(
    ("part", "module", "arguments"),
    [
        ("worker", "torch", ("--config", "x.json")),
        ("sidecar", "fastapi", ("--config", "x.json")),
        ("operator", "kopf", ()),
    ],
)
def test_missing_extra(part: str, module: str, arguments: tuple[str, ...]) -> None:
    ended = chiasm(part, "run", *arguments, without=module)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"chiasm: chiasm {part} run needs {module}, which is not installed; "
        f"run: pip install 'chiasm[{part}]'\n"
    )


def test_sidecar_runs_its_file(tmp_path: Path) -> None:
    ended = chiasm("sidecar", "run", "--config", str(tmp_path / "none.json"))
    assert ended.returncode == 1
    assert "none.json" in ended.stderr


def test_compression_is_one_of_the_ratios(tmp_path: Path) -> None:
    for option in ("--compression", "--low-detail-compression"):
        ended = chiasm("serve", str(tmp_path), option, "4")
        assert ended.returncode == 1  # no model in the folder: the option itself was taken
        ended = chiasm("serve", str(tmp_path), option, "5")
        assert ended.returncode == 2
        assert "'16'" in ended.stderr


def test_a_key_comes_from_the_environment_too(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    ended = subprocess.run(
        [sys.executable, "-m", "chiasm_cli", "ask", str(picture), "?"],
        env={**os.environ, "CHIASM_API_KEY": "two words"},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "the API key holds blanks" in ended.stderr


def test_wrong_option() -> None:
    ended = chiasm("serve", "demo", "--surprise")
    assert ended.returncode == 2
    assert "No such option" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [("worker", "--config", "x"), ("sidecar", "--config", "x"), ("operator",)]
)
def test_a_part_that_still_starts_hears_that_it_is_to_end(arguments: tuple[str, ...]) -> None:
    """The first process of a container hears only signals that it has a handler for."""
    part, *options = arguments
    program = (
        "import sys, time, types; slow = types.ModuleType('slow'); "
        "slow.run = lambda *_: (print('starting', flush=True), time.sleep(600)); "
        f"sys.modules['chiasm_{part}.main'] = slow; from chiasm_cli.main import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, part, "run", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starting\n"
        process.terminate()
        assert process.wait(120) == 0
