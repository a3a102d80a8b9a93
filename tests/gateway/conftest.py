"""One cluster with Envoy Gateway, a real Envoy and the demo model behind them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import yaml
from chiasm_cluster import state
from chiasm_cluster.build import gateway
from chiasm_cluster.images import gateway as images
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node.worker import ctr
from chiasm_cluster.settings import Settings
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

NAME = "gateway"
RESOURCE = "shelf-reader"
HOST = "reader.example.com"
SYSTEM = "envoy-gateway-system"
HERE = Path(__file__).parent

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, seconds: float = 300) -> T:
    """What `look` finds, once it is something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(1)
    raise AssertionError(f"within {seconds:g} s {what}")


class Site:
    """The cluster as its operator and its clients see it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.generation = 0
        service = self._items("service", SYSTEM, "gateway.envoyproxy.io/owning-gateway-name=public")
        self.client = httpx.Client(
            base_url=f"http://{service[0]['spec']['clusterIP']}",
            headers={"host": HOST},
            timeout=120,
        )

    def _items(self, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.cluster.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json")
        )["items"]
        return found

    # --- what a platform engineer does ---

    def apply(self, split: str, max_num_seqs: int) -> None:
        """Another `max_num_seqs` is another revision."""
        body = yaml.safe_load((tour.MANIFEST).read_text())
        body["spec"] |= {
            "replicas": 1,
            "engine": {"maxNumSeqs": max_num_seqs, "kvCacheBytes": "128Mi"},
            "gateway": {
                "parentRefs": [{"name": "public"}],
                "hostnames": [HOST],
                "split": split,
            },
        }
        path = state.required(NAME).kubeconfig.parent / "resource.yaml"
        path.write_text(yaml.safe_dump(body))
        self.cluster.kubectl("apply", "-n", tour.NAMESPACE, "-f", str(path))

    def annotate(self, *words: str) -> None:
        self.cluster.kubectl(
            "annotate", "mmi", RESOURCE, "-n", tour.NAMESPACE, "--overwrite",
            *(f"chiasm.dev/{word}" for word in words),
        )  # fmt: skip

    def weigh(self, weight: int) -> None:
        """Give the canary this weight, and wait until the operator says that it has it."""
        self.annotate(f"canary-weight={weight}")
        self.until_synced(f"{weight}")

    # --- what there is ---

    @property
    def resource(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.cluster.kubectl("get", "mmi", RESOURCE, "-n", tour.NAMESPACE, "-o", "json")
        )
        return found

    def condition(self, kind: str) -> str:
        conditions = self.resource.get("status", {}).get("conditions", ())
        return next((item["status"] for item in conditions if item["type"] == kind), "")

    def until_synced(self, weight: str) -> None:
        def synced() -> bool:
            status = self.resource.get("status", {})
            same = status.get("rollout", {}).get("weight") == weight
            return same and self.condition("TrafficSynced") == "True"

        eventually(synced, f"the canary should have {weight} %")

    def until_ready(self) -> None:
        def ready() -> bool:
            found = self.resource
            seen = found.get("status", {}).get("observedGeneration")
            return seen == found["metadata"]["generation"] and self.condition("Ready") == "True"

        eventually(ready, "the resource should be Ready", 600)

    def computed(self) -> dict[str, int]:
        """Answers that each revision's own workers have given, ever."""
        found: dict[str, int] = {}
        for pod in self._items("pod", tour.NAMESPACE, f"chiasm.dev/name={RESOURCE}"):
            revision, address = (
                pod["metadata"]["labels"]["chiasm.dev/revision"],
                pod["status"].get("podIP"),
            )
            text = httpx.get(f"http://{address}:9100/metrics", timeout=30).text
            lines = [line for line in text.splitlines() if "request_success_total{" in line]
            total = sum(int(float(line.rpartition(" ")[2])) for line in lines)
            found[revision] = found.get(revision, 0) + total
        return found

    # --- what clients do ---

    def ask(self, **headers: str) -> int:
        """The status of one short request through Envoy."""
        body = {
            "model": RESOURCE,
            "messages": [{"role": "user", "content": "What?"}],
            "max_tokens": 1,
        }
        return self.client.post("/v1/chat/completions", json=body, headers=headers).status_code

    def share(self, number: int, **headers: str) -> dict[str, int]:
        """How many of `number` requests, all answered well, each revision computed."""
        before = self.computed()
        statuses = [self.ask(**headers) for _ in range(number)]
        assert set(statuses) == {200}, statuses
        after = self.computed()
        return {revision: after[revision] - before.get(revision, 0) for revision in after}


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Everything, installed; removed at the end."""
    cluster = LocalCluster(NAME)
    try:
        cluster.up()
        cluster.load()
        _bring_images()
        _install(cluster)
        tour.install(cluster)
        yield Site(cluster)
    finally:
        cluster.down()


def _bring_images() -> None:
    cache_dir, running = Settings().cache_dir, state.required(NAME)
    program = gateway.ensure_program(cache_dir, print)
    envoy = images.envoy(cache_dir, print)
    for image in (envoy, images.controller(program, envoy.layers[0])):
        for node in running.nodes:
            store = ImageStore(ctr(running, node))
            if store.digests().get(image.name) != image.digest:
                store.import_image(image)


def _install(cluster: LocalCluster) -> None:
    folder = state.required(NAME).kubeconfig.parent
    chart = folder / "gateway-helm"
    if not chart.exists():
        gateway.chart(folder, images.GATEWAY_IMAGE)
    cluster.helm(
        "upgrade", "--install", "eg", str(chart), "-n", SYSTEM, "--create-namespace",
        "--set", "topologyInjector.enabled=false", "--wait", "--timeout", "5m",
    )  # fmt: skip
    path = folder / "gateway.yaml"
    text = (HERE / "manifests.yaml").read_text().replace("ENVOY_IMAGE", images.ENVOY_IMAGE)
    path.write_text(text)
    cluster.kubectl("apply", "-f", str(path))
    cluster.kubectl(
        "wait", "--for=condition=Programmed", "gateway/public", "-n", "default", "--timeout=300s"
    )
