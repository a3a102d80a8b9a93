"""A real Prometheus and promtool, built once."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chiasm_cluster.build.prometheus import PROGRAM
from chiasm_cluster.settings import Settings

from tests.sidecar.conftest import start_pod, worker

__all__ = ["programs", "start_pod", "watched", "worker"]

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of both programs."""
    return PROGRAM.ensure(Settings().cache_dir, print).parent


@pytest.fixture(scope="session")
def watched() -> Iterator[Any]:
    """The package that `bench/dashboards.py` uses."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCH))
        for name in ("prometheus", "promtool"):
            importlib.import_module(f"watched.{name}")
        yield importlib.import_module("watched")
