"""One cluster for the main job: brought up, installed and asked by the demo's own tour."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chiasm_tour import asking, tour
from chiasm_tour.clusters import LocalCluster

from tests.turns import turn_with

NAME = "chiasm-e2e"
SAMPLES = json.loads((asking.PICTURES / "questions.json").read_text())


@pytest.fixture(scope="session")
def demo_cluster() -> Iterator[LocalCluster]:
    """The cluster after `make demo` went through on it; removed at the end."""
    cluster = LocalCluster(NAME)
    with turn_with(NAME):
        cluster.down()  # what an interrupted run left
        try:
            tour.demo(cluster)
            yield cluster
        finally:
            cluster.down()


@pytest.fixture(scope="session")
def url(demo_cluster: LocalCluster) -> Iterator[str]:
    """The address of the demo's Service."""
    with demo_cluster.endpoint(tour.NAMESPACE, tour.RESOURCE, tour.API_PORT) as address:
        yield address


@pytest.fixture
def applied(demo_cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    manifests: list[Path] = []

    def apply(text: str) -> None:
        manifests.append(tmp_path / f"{len(manifests)}.yaml")
        manifests[-1].write_text(text)
        demo_cluster.kubectl("apply", "-f", str(manifests[-1]))

    yield apply
    for manifest in manifests:
        demo_cluster.kubectl("delete", "-f", str(manifest), "--wait=true")


def user_turn(image: Path, question: str) -> list[dict[str, Any]]:
    content = [
        {"type": "image_url", "image_url": {"url": asking.data_url(image)}},
        {"type": "text", "text": question},
    ]
    return [{"role": "user", "content": content}]


def conditions(cluster: LocalCluster, resource: str) -> dict[str, Any]:
    words = cluster.kubectl("get", "mmi", resource, "-o", "json", quiet=True)
    found = json.loads(words or "{}").get("status", {}).get("conditions", [])
    return {condition["type"]: condition for condition in found}


def eventually(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait for a state of the cluster; the limit only ends a wait that would never end."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)
