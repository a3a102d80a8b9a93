"""A local cluster with another project's controller, the chart, and the demo's resource on it.

The tests that are asked for by name share it; each brings its own controller.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import yaml
from chiasm_cluster import state
from chiasm_cluster.images import load
from chiasm_cluster.images.archive import Image
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

from tests.turns import turn_with

RESOURCE = tour.RESOURCE

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, seconds: float = 300) -> T:
    """What `look` finds, once it is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(1)
    raise AssertionError(f"within {seconds:g} s {what}")


@contextmanager
def running(
    name: str, images: Callable[[], Iterable[Image]], install: Callable[[LocalCluster], None]
) -> Iterator[LocalCluster]:
    """A cluster with the controller made of `images` and with the chart; removed at the end."""
    cluster = LocalCluster(name)
    with turn_with(name):
        cluster.down()  # what an interrupted run left
        try:
            cluster.up()
            cluster.load()
            for image in images():
                load.bring(state.required(name), image, print)
            install(cluster)
            tour.install(cluster)
            yield cluster
        finally:
            cluster.down()


@contextmanager
def asking(ask: Callable[[], int], num_clients: int = 1) -> Iterator[list[int]]:
    """Clients ask all the while, each as soon as it has its answer; the statuses so far."""
    statuses: list[int] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            statuses.append(ask())

    threads = [threading.Thread(target=go_on) for _ in range(num_clients)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()


class Site:
    """The demo's resource as a platform engineer changes it and sees it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def get(self, *words: str) -> dict[str, Any]:
        """An object, or the list of those that a selector chooses."""
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", *words, "-o", "json"))
        return found

    def pods(self) -> list[dict[str, Any]]:
        """The resource's pods."""
        found: list[dict[str, Any]] = self.get(
            "pod", "-n", tour.NAMESPACE, "-l", f"chiasm.dev/name={RESOURCE}"
        )["items"]
        return found

    def apply(self, **sections: Any) -> None:
        """Apply the demo's manifest with these sections; None leaves one out."""
        body = yaml.safe_load(tour.MANIFEST.read_text())
        merged = {**body["spec"], **sections}
        body["spec"] = {key: value for key, value in merged.items() if value is not None}
        path = state.required(self.cluster.name).kubeconfig.parent / "resource.yaml"
        path.write_text(yaml.safe_dump(body))
        self.cluster.kubectl("apply", "-n", tour.NAMESPACE, "-f", str(path))

    @property
    def resource(self) -> dict[str, Any]:
        """The resource now."""
        return self.get("mmi", RESOURCE, "-n", tour.NAMESPACE)

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition of the resource; empty when it has none of this type."""
        conditions = self.resource.get("status", {}).get("conditions", ())
        return next((item for item in conditions if item["type"] == kind), {})

    def is_true(self, kind: str) -> bool:
        """Whether a condition holds."""
        return self.condition(kind).get("status") == "True"

    def until_ready(self) -> None:
        """Wait until the operator says so of the spec as it is now."""

        def ready() -> bool:
            found = self.resource
            seen = found.get("status", {}).get("observedGeneration")
            return seen == found["metadata"]["generation"] and self.is_true("Ready")

        eventually(ready, "the resource should be Ready", 600)
