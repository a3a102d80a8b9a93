"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "contract", "operator", "worker", "sidecar", "cluster", "cli", "demo", "observability",
    "proofs",
)  # fmt: skip
GENERATED = frozenset[str]()
BANNED_MODULE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")  # fmt: skip
    return [ROOT / name for name in listed if name and (ROOT / name).exists()]


SOURCES = [path for path in tracked("*.py") if path.relative_to(ROOT).parts[0] != "tests"]
TESTS = [path for path in tracked("*.py") if path.relative_to(ROOT).parts[0] == "tests"]


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 50
    assert len(TESTS) > 20


@pytest.mark.parametrize("part", PARTS)
def test_part_folders_are_no_packages(part: str) -> None:
    assert not (ROOT / part / "__init__.py").exists(), (
        f"{part}/__init__.py must not exist: operator/__init__.py would shadow the standard "
        "library's operator module, and the others follow the same rule"
    )


def test_standard_library_survives_our_folder_names() -> None:
    subprocess.run([sys.executable, "-c", "import collections, operator"], cwd=ROOT, check=True)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_length(path: Path) -> None:
    if str(path.relative_to(ROOT)) in GENERATED:
        return
    limit = 600 if "kernels" in path.parts else 400
    num_lines = len(path.read_text().splitlines())
    assert num_lines <= limit, f"{path.name} has {num_lines} lines; split it below {limit}"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_test_length(path: Path) -> None:
    num_lines = len(path.read_text().splitlines())
    assert num_lines <= 500, f"{path.name} has {num_lines} lines; split it below 500"


def test_no_module_is_named_for_leftovers() -> None:
    assert not [path for path in SOURCES if path.stem in BANNED_MODULE_NAMES]


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_only_settings_read_the_environment() -> None:
    """Entry points outside the parts (tools, bench, proofs, ...) talk to a person's shell."""
    offenders = []
    for path in SOURCES:
        part = path.relative_to(ROOT).parts[0]
        if part in {"tools", "bench", "demo", "cluster", "proofs"} or path.stem == "settings":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
                offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not offenders, f"only settings.py reads the environment: {offenders}"


@pytest.mark.parametrize("module", ["pickle", "marshal", "shelve"])
def test_nothing_unpickles(module: str) -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(
            (isinstance(node, ast.Import) and any(a.name == module for a in node.names))
            or (isinstance(node, ast.ImportFrom) and node.module == module)
            for node in ast.walk(ast.parse(path.read_text()))
        )
    ]
    assert not offenders
