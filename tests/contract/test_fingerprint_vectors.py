"""The recorded fingerprints: what they are made of, and that other Python versions agree."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("vectors_elsewhere.py")
VECTORS = ROOT / "tests" / "golden" / "fingerprints.json"
DOCUMENT: dict[str, Any] = json.loads(VECTORS.read_text())
OTHERS = [f"3.{minor}" for minor in range(11, 15) if minor != sys.version_info.minor]


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_this_python_agrees() -> None:
    assert imported(SCRIPT).wrong(DOCUMENT) == []


def test_a_change_is_noticed() -> None:
    document = json.loads(VECTORS.read_text())
    document["vectors"][0]["compute"]["fields"]["position"]["theta"] = 10000.0
    name = document["vectors"][0]["name"]
    assert imported(SCRIPT).wrong(document) == [
        f"{name}: compute: cbor", f"{name}: compute: sha256",
    ]  # fmt: skip


def test_the_file_is_current() -> None:
    (text,) = imported(ROOT / "tools" / "vector_files.py").outputs(ROOT).values()
    assert VECTORS.read_text() == text, "run make generate; a changed line needs another SCHEMA"


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda vector: vector["name"])
@pytest.mark.parametrize("domain", ["compute", "repr", "scope"])
def test_a_digest_is_that_of_a_tag_and_a_map(vector: dict[str, Any], domain: str) -> None:
    """What another implementation needs to know, said without our own encoder."""
    data = bytes.fromhex(vector[domain]["cbor"])
    assert hashlib.sha256(data).hexdigest() == vector[domain]["sha256"]
    tag = f"chiasm/{domain}/{DOCUMENT['schema']}".encode()
    num_fields = {"compute": 16, "repr": 11, "scope": 3}[domain]
    assert data.startswith(bytes([0x40 | len(tag)]) + tag + bytes([0xA0 | num_fields, 0x01]))


def test_the_vectors_differ_in_every_digest() -> None:
    for domain in ("compute", "repr", "scope"):
        digests = [vector[domain]["sha256"] for vector in DOCUMENT["vectors"]]
        assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("other", OTHERS)
def test_another_python_agrees(other: str, tmp_path: Path) -> None:
    """With the same pydantic; skipped where that interpreter or its packages are not to be had."""
    run = _elsewhere(other)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "contract"), "PYTHONHASHSEED": "1"}
    ran = subprocess.run(
        [*run, str(SCRIPT), str(VECTORS)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert ran.stdout == f"Python {other}: as recorded\n", ran.stderr


def _elsewhere(other: str) -> list[str]:
    """The command that runs a script with Python `other` and our pydantic."""
    cache = imported(ROOT / "tools" / "setup.py").CACHE
    uv = shutil.which("uv") or next(map(str, cache.glob("uv-*/bin/uv")), None)
    if uv is None:
        pytest.skip("uv is not installed")
    reasons = ""
    for python in (*_of_pyenv(other), other):
        command = [uv, "run", "-q", "--no-project", "--no-python-downloads", "--python", python]
        command += ["--with", f"pydantic=={version('pydantic')}", "python"]
        ran = subprocess.run(
            [*command, "-c", "import pydantic"],
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        if ran.returncode == 0:
            return command
        reasons += ran.stderr
    pytest.skip(f"no Python {other} with pydantic: {' '.join(reasons.split())[:300]}")


def _of_pyenv(other: str) -> list[str]:
    """pyenv's own folders: its commands on the PATH work for the chosen version only."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    return sorted(map(str, root.glob(f"versions/{other}.*/bin/python")))
