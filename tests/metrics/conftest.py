"""One cluster with a real metrics-server and the demo model, whose worker really computes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import httpx
import pytest
from chiasm_cluster.build import metrics
from chiasm_cluster.images import program
from chiasm_cluster.images.archive import Image
from chiasm_cluster.settings import Settings
from chiasm_tour import asking, tour
from chiasm_tour.clusters import LocalCluster

from tests import demo_site
from tests.demo_site import RESOURCE

NAME = "metrics"
SYSTEM = "kube-system"
REPOSITORY = "docker.io/chiasm/metrics-server"
SERVICE = "v1beta1.metrics.k8s.io"
# Each pod has it: what signed the kubelets' certificates too.
AUTHORITY = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
QUESTION = asking.sample_questions(1)[0]


class Site(demo_site.Site):
    """The resource, its autoscaler, and clients that keep the worker busy."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.client = httpx.Client(timeout=120)
        self._picture = asking.data_url(QUESTION.image)

    @cached_property
    def _url(self) -> str:
        service = self.get("service", RESOURCE, "-n", tour.NAMESPACE)
        return f"http://{service['spec']['clusterIP']}:{tour.API_PORT}/v1/chat/completions"

    @property
    def replicas(self) -> int:
        """What the resource asks for."""
        number: int = self.resource["spec"]["replicas"]
        return number

    def settled(self, number: int) -> bool:
        """Whether this many pods are asked for, are there and serve."""
        found = self.resource
        ready = found.get("status", {}).get("ready")
        return found["spec"]["replicas"] == number and ready == f"{number}/{number}"

    def used_percent(self) -> int | None:
        """The worker's processor time as the autoscaler knows it, a share of its request."""
        hpa = self.get("hpa", RESOURCE, "-n", tour.NAMESPACE)
        for metric in hpa["status"].get("currentMetrics") or ():
            current = metric.get("containerResource", {}).get("current", {})
            if "averageUtilization" in current:
                number: int = current["averageUtilization"]
                return number
        return None

    def writers_of_replicas(self) -> set[str]:
        """Who set `spec.replicas` to what it is."""
        found = self.get(
            "mmi", RESOURCE, "-n", tour.NAMESPACE, "--show-managed-fields"
        )["metadata"]["managedFields"]  # fmt: skip
        return {
            entry["manager"]
            for entry in found
            if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        }

    def ask(self) -> int:
        """The status of one question about a picture."""
        content = [
            {"type": "image_url", "image_url": {"url": self._picture}},
            {"type": "text", "text": QUESTION.text},
        ]
        body: dict[str, Any] = {
            "model": RESOURCE,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 64,
            "ignore_eos": True,  # an answer of the demo is a word or two
        }
        return self.client.post(self._url, json=body).status_code


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Everything, installed; removed at the end."""
    with demo_site.running(NAME, _images, _install) as cluster:
        site = Site(cluster)
        with site.client:
            yield site


def _images() -> list[Image]:
    built = metrics.PROGRAM.ensure(Settings().cache_dir, print)
    return [program.image(f"{REPOSITORY}:{metrics.PROGRAM.version}", built)]


def _install(cluster: LocalCluster) -> None:
    """Install metrics-server's own chart; every certificate is verified, on both sides of it."""
    values = {
        "image.repository": REPOSITORY,
        "image.tag": metrics.PROGRAM.version,
        "image.pullPolicy": "Never",
        "tls.type": "helm",
        "apiService.insecureSkipTLSVerify": "false",
        "args[0]": f"--kubelet-certificate-authority={AUTHORITY}",
    }
    cluster.helm(
        "upgrade", "--install", "metrics-server", str(metrics.PROGRAM.charts() / "metrics-server"),
        "-n", SYSTEM, "--wait", "--timeout", "5m",
        *(word for key, value in values.items() for word in ("--set", f"{key}={value}")),
    )  # fmt: skip
    cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{SERVICE}", "--timeout=300s")
