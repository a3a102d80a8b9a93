"""One cluster for the main job: brought up, installed and asked by the demo's own tour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

NAME = "chiasm-e2e"


@pytest.fixture(scope="session")
def demo_cluster() -> Iterator[LocalCluster]:
    """The cluster after `make demo` went through on it; removed at the end."""
    cluster = LocalCluster(NAME)
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
