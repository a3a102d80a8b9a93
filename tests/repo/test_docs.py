"""Docs name only things that exist: paths, make targets, package modules."""

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
