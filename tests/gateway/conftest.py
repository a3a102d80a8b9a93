"""One cluster with Envoy Gateway, a real Envoy and the demo model behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from chiasm_cluster import state
from chiasm_cluster.build import gateway
from chiasm_cluster.images import gateway as images
from chiasm_cluster.images.archive import Image
from chiasm_cluster.settings import Settings
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

from tests import demo_site
from tests.demo_site import RESOURCE, eventually

NAME = "gateway"
HOST = "reader.example.com"
SYSTEM = "envoy-gateway-system"
HERE = Path(__file__).parent


class Site(demo_site.Site):
    """The cluster as its operator and its clients see it."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        selector = "gateway.envoyproxy.io/owning-gateway-name=public"
        service = self.get("service", "-n", SYSTEM, "-l", selector)["items"][0]
        self.client = httpx.Client(
            base_url=f"http://{service['spec']['clusterIP']}",
            headers={"host": HOST},
            timeout=120,
        )

    # --- what a platform engineer does ---

    def present(self, split: str, max_num_seqs: int) -> None:
        """Apply it behind the Gateway; another `max_num_seqs` is another revision."""
        self.apply(
            replicas=1,
            engine={"maxNumSeqs": max_num_seqs, "kvCacheBytes": "128Mi"},
            gateway={
                "parentRefs": [{"name": "public"}],
                "hostnames": [HOST],
                "split": split,
            },
        )

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

    def until_synced(self, weight: str) -> None:
        def synced() -> bool:
            status = self.resource.get("status", {})
            same = status.get("rollout", {}).get("weight") == weight
            return same and self.is_true("TrafficSynced")

        eventually(synced, f"the canary should have {weight} %")

    def computed(self) -> dict[str, int]:
        """Answers that each revision's own workers have given, ever."""
        found: dict[str, int] = {}
        for pod in self.pods():
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
    with demo_site.running(NAME, _images, _install) as cluster:
        site = Site(cluster)
        with site.client:
            yield site


def _images() -> tuple[Image, ...]:
    return images.images(Settings().cache_dir, print)


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
