"""The test cluster, shared by every part's marked tests: started empty, stopped at the end.

CHIASM_TEST_KUBECONFIG names another cluster to use; nothing is started or stopped then.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.turns import turn_with

CLUSTER_NAME = "chiasm-test"

# No test fails because the machine was busy: no example, and no drawing of one, has a deadline.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

Run = Callable[..., str]
# Fixtures that bring up a cluster or programs that make one.
_CLUSTERS = {"kubeconfig", "demo_cluster", "two_nodes", "make_cluster"}


# Marked so, a test takes many minutes, and only who names the marker (`-m`) gets it.
_BY_NAME_ONLY = ("external_secrets", "gateway", "gpu", "kills", "metrics", "prometheus", "vault")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on a cluster come last; the longest ones only for who asks for them.

    Clusters stay up until the run ends (pytest ends a package's fixtures only where it has an
    `__init__.py`): three idle ones took a third of two cores from all tests behind them.
    """
    unnamed = [marker for marker in _BY_NAME_ONLY if marker not in config.option.markexpr]
    left_out = [item for item in items if any(map(item.get_closest_marker, unnamed))]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
    items.sort(key=lambda item: bool(_CLUSTERS & set(getattr(item, "fixturenames", ()))))


def chiasm_cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chiasm_cluster", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """Path of the test cluster's kubeconfig."""
    given = os.environ.get("CHIASM_TEST_KUBECONFIG")
    if given:
        yield Path(given)
        return
    with turn_with(CLUSTER_NAME):
        chiasm_cluster("down", "--name", CLUSTER_NAME)  # what an interrupted run left
        started = chiasm_cluster("up", "--name", CLUSTER_NAME)
        assert started.returncode == 0, started.stderr
        yield Path(chiasm_cluster("kubeconfig", "--name", CLUSTER_NAME).stdout.strip())
        chiasm_cluster("down", "--name", CLUSTER_NAME)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the cluster's own kubectl and helm; built when missing."""
    from chiasm_cluster.build.binaries import ensure_binaries
    from chiasm_cluster.settings import Settings

    return ensure_binaries(Settings().cache_dir, print)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path, programs: Path) -> Run:
    """Runs kubectl on the test cluster; returns what it printed, both streams when it failed."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(*arguments: str, stdin: str | None = None, check: bool = True) -> str:
        ran = subprocess.run(
            [str(programs / "kubectl"), *arguments],
            input=stdin, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr

    return run


@pytest.fixture(scope="session")
def helm(programs: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm; needs no cluster for `template` and `lint`."""

    def run(*arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
        return subprocess.run(
            [str(programs / "helm"), *arguments],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def api(kubeconfig: Path, programs: Path) -> Iterator[httpx.Client]:
    """The test cluster's API, through kubectl's proxy: whatever credentials there are."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with subprocess.Popen(
        [str(programs / "kubectl"), "proxy", "--port=0"],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as proxy:  # fmt: skip
        assert proxy.stdout is not None
        address = re.search(r"127\.0\.0\.1:\d+", proxy.stdout.readline())
        assert address is not None
        with httpx.Client(base_url=f"http://{address[0]}", timeout=30) as client:
            yield client
        proxy.terminate()


@pytest.fixture
def make_namespace(api: httpx.Client) -> Iterator[Callable[[], str]]:
    """Makes namespaces that are deleted after the test."""
    made: list[str] = []

    def make() -> str:
        body: dict[str, Any] = {"metadata": {"generateName": "test-"}}
        created = api.post("/api/v1/namespaces", json=body)
        created.raise_for_status()
        made.append(created.json()["metadata"]["name"])
        return made[-1]

    yield make
    for name in made:
        api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def namespace(make_namespace: Callable[[], str]) -> str:
    """A namespace for one test; deleted afterwards."""
    return make_namespace()
