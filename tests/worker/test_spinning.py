"""How long the threads of a matrix product wait for each other before they sleep."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "used"), [(None, "10000"), ("7", "7")])
def test_openmp_is_told_before_it_is_loaded(given: str | None, used: str) -> None:
    environment = {**os.environ, "OMP_DISPLAY_ENV": "verbose"}
    environment.pop("GOMP_SPINCOUNT", None)
    if given is not None:
        environment["GOMP_SPINCOUNT"] = given
    told = subprocess.run(
        [sys.executable, "-c", "import chiasm_worker.main"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert f"GOMP_SPINCOUNT = '{used}'" in told
