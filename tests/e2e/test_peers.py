"""What one pod computed, another of the resource starts from, sent from its memory."""

from __future__ import annotations

import json
import secrets
import socket
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from chiasm_contract import names
from chiasm_tour import asking
from chiasm_tour.clusters import LocalCluster
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.conftest import SAMPLES, conditions, eventually, user_turn

pytestmark = pytest.mark.cluster

RESOURCE = "sharing"
SECRET = """
apiVersion: v1
kind: Secret
metadata: {{name: sharing-peers}}
stringData: {{secret: {secret}}}
"""
SHARING = """
apiVersion: chiasm.dev/v1alpha1
kind: MultimodalInference
metadata: {name: sharing}
spec:
  model: {source: {builtin: demo}}
  replicas: 2
  tiers:
    host: {maxBytes: 64Mi}
    peers:
      secret: {name: sharing-peers, key: secret}
      timeoutMilliseconds: 5000  # two cores are shared with everything else here
"""


@dataclass(frozen=True)
class Pod:
    """One pod, asked without the Service, so that it is known which one answers."""

    manifest: dict[str, Any]

    @property
    def address(self) -> str:
        found: str = self.manifest["status"]["podIP"]
        return found

    def answer(self, row: dict[str, Any]) -> tuple[str | None, int]:
        """What it says of a picture, and how much of the prompt was there already."""
        url = f"http://{self.address}:{names.API_PORT}/v1"
        with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
            completion = client.chat.completions.create(
                model=RESOURCE, temperature=0, max_tokens=32,
                messages=user_turn(asking.PICTURES / row["picture"], row["text"]),
            )  # fmt: skip
        assert completion.usage is not None
        details = completion.usage.prompt_tokens_details
        return completion.choices[0].message.content, (details.cached_tokens or 0) if details else 0

    def counted(self, name: str, **labels: str) -> float:
        """The sum of a metric's values that have these labels."""
        address = f"http://{self.address}:{names.METRICS_PORT}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@pytest.fixture
def pods(demo_cluster: LocalCluster, applied: Callable[[str], None]) -> tuple[Pod, Pod]:
    """Two that share, after the operator said what was missing."""
    applied(SHARING)

    def named() -> bool:
        held = conditions(demo_cluster, RESOURCE).get("Ready", {})
        return held.get("reason") == "SecretNotFound" and "sharing-peers" in held["message"]

    eventually(named, "the Ready condition should name the Secret")
    applied(SECRET.format(secret=secrets.token_hex(32)))

    def ready() -> bool:
        return conditions(demo_cluster, RESOURCE).get("Ready", {}).get("status") == "True"

    eventually(ready, "the pods should be ready", 420)
    listed = demo_cluster.kubectl("get", "pods", "-l", f"chiasm.dev/name={RESOURCE}", "-o", "json")
    first, second = map(Pod, json.loads(listed)["items"])
    return first, second


def test_a_pod_starts_from_what_another_computed(
    demo_cluster: LocalCluster, pods: tuple[Pod, Pod]
) -> None:
    first, second = pods
    (sidecar,) = first.manifest["spec"]["initContainers"]
    assert sidecar["securityContext"]["readOnlyRootFilesystem"]
    assert "sidecar-peers" not in sidecar["image"]
    assert conditions(demo_cluster, RESOURCE)["Degraded"]["status"] == "False"
    rows = iter({row["picture"]: row for row in SAMPLES}.values())

    def restored() -> bool:
        """Of another picture each time: one that the second pod did not find it computes."""
        row, before = next(rows), first.counted("chiasm_kv_blocks_stored_total", tier="host")
        said, _ = first.answer(row)
        stored = ("chiasm_kv_blocks_stored_total", "the first pod should keep what it computed")
        eventually(lambda: first.counted(stored[0], tier="host") > before, stored[1])
        again, num_cached = second.answer(row)
        assert again == said
        return num_cached > 0

    # It looks for others every few seconds.
    eventually(restored, "the second pod should read what the first one computed", 60)
    assert second.counted("chiasm_kv_blocks_found_total", tier="peer") > 0
    assert second.counted("chiasm_kv_read_bytes_total", tier="peer") > 0
    assert second.counted("chiasm_kv_peers") == 1
    for pod in pods:
        assert pod.counted("chiasm_kv_peers_fenced") == 1
        with pytest.raises(OSError, match=r"refused|timed out"):
            socket.create_connection((pod.address, names.PEER_DATA_PORT), timeout=2)
