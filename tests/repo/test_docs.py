"""Docs name only things that exist: paths, tests, make targets, package modules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TOP_LEVEL = {path.name for path in ROOT.iterdir()}
CODE_SPAN = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def spans(path: Path) -> list[str]:
    return CODE_SPAN.findall(FENCE.sub("", path.read_text()))


def names_a_path(span: str) -> bool:
    first = span.split("/", maxsplit=1)[0]
    plain = re.fullmatch(r"[\w./-]+", span) is not None
    return plain and "/" in span and (first in TOP_LEVEL or first in {".ci"})


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_exist(doc: Path) -> None:
    missing = [
        span for span in spans(doc) if names_a_path(span) and not (ROOT / span.rstrip("/")).exists()
    ]
    assert not missing, f"{doc.name} names paths that do not exist: {missing}"


def missing_tests(spans: list[str]) -> list[str]:
    """Of `path::name`, those that are no function of a test module; a name has no brackets."""
    missing = []
    for span in spans:
        path, separator, name = span.partition("::")
        if not separator or not path.startswith("tests/"):
            continue
        module = ROOT / path
        defined = (
            re.search(rf"^(async )?def {re.escape(name)}\(", module.read_text(), re.MULTILINE)
            if name.startswith("test_") and module.is_file()
            else None
        )
        if defined is None:
            missing.append(span)
    return missing


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tests_exist(doc: Path) -> None:
    missing = missing_tests(spans(doc))
    assert not missing, f"{doc.name} names tests that do not exist: {missing}"


def test_a_test_that_does_not_exist_is_noticed() -> None:
    here = "tests/repo/test_docs.py"
    assert missing_tests([f"{here}::test_tests_exist", "std::move", "tests/repo"]) == []
    wrong = [
        f"{here}::test_tests_exis",
        f"{here}::test_tests_exist[a]",
        f"{here}::missing_tests",
        "tests/repo/test_doc.py::test_tests_exist",
        "tests/repo::test_tests_exist",
    ]
    assert missing_tests(wrong) == wrong


def test_every_known_fault_has_a_test_or_a_reason() -> None:
    rows = [
        line.strip("|").split(" | ")
        for line in (ROOT / "docs" / "known-faults.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) >= 100
    for row in rows:
        assert len(row) == 3, row
        assert re.match(r" ?(`tests/[^`]+::|Cannot occur: |Not yet built\b)", row[2]), row


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_exist(doc: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", doc.read_text())
    missing = [link for link in links if not (doc.parent / link).exists()]
    assert not missing, f"{doc.name} links to files that do not exist: {missing}"


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_exist(doc: Path) -> None:
    code = "\n".join([*spans(doc), *FENCE.findall(doc.read_text())])
    named = set(re.findall(r"^(?:\$ )?make ([a-z0-9-]+)", code, re.MULTILINE))
    assert named <= TARGETS, f"{doc.name} names make targets that do not exist"


def test_modules_run_with_dash_m_exist() -> None:
    for doc in [*DOCS, ROOT / "Makefile"]:
        for module in re.findall(r"-m (chiasm_\w+)", doc.read_text()):
            assert list(ROOT.glob(f"*/{module}/__main__.py")), f"{doc.name}: -m {module}"


def test_every_script_compiles() -> None:
    scripts = [ROOT / ".ci" / "run"]
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)
