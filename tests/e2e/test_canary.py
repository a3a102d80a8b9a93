"""A canary by annotation on a real Kubernetes: its share, its promotion, and the way back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from chiasm_contract import names
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

from tests.e2e.conftest import conditions, eventually

pytestmark = pytest.mark.cluster

NAME = "changing"
MANIFEST = f"""
apiVersion: chiasm.dev/v1alpha1
kind: MultimodalInference
metadata: {{name: {NAME}}}
spec:
  model: {{source: {{builtin: demo}}}}
  rollout: {{abort: {{scaleDownDelaySeconds: 0}}}}
"""


class Resource:
    """What the test does with the resource, and what it sees of it."""

    def __init__(self, cluster: LocalCluster, url: str) -> None:
        self._cluster = cluster
        self._url = f"{url}/v1/chat/completions"

    def annotate(self, **values: str) -> None:
        words = [f"{names.GROUP}/{key.replace('_', '-')}={value}" for key, value in values.items()]
        self._cluster.kubectl("annotate", "mmi", NAME, "--overwrite", *words)

    def change(self, max_num_seqs: int) -> None:
        spec = {"spec": {"engine": {"maxNumSeqs": max_num_seqs}}}
        self._cluster.kubectl("patch", "mmi", NAME, "--type=merge", "-p", json.dumps(spec))

    def rollout(self) -> dict[str, Any]:
        words = self._cluster.kubectl("get", "mmi", NAME, "-o", "jsonpath={.status.rollout}")
        found: dict[str, Any] = json.loads(words or "{}")
        return found

    def pointer(self) -> str:
        service = json.loads(self._cluster.kubectl("get", "service", NAME, "-o", "json"))
        found: str = service["spec"]["selector"][names.LABEL_REVISION]
        return found

    def pods(self) -> dict[str, tuple[str, int]]:
        """Name -> revision and restarts."""
        chosen = f"{names.LABEL_OWNER}={NAME}"
        listed = json.loads(self._cluster.kubectl("get", "pods", "-l", chosen, "-o", "json"))
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["labels"][names.LABEL_REVISION],
                sum(
                    container["restartCount"]
                    for kind in ("containerStatuses", "initContainerStatuses")
                    for container in pod["status"].get(kind, [])
                ),
            )
            for pod in listed["items"]
        }

    def ask(self, text: str) -> str:
        """The revision that answered a new conversation."""
        body = {"model": NAME, "messages": [{"role": "user", "content": text}], "max_tokens": 4}
        answer = httpx.post(self._url, json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        return answer.headers.get(names.CONVERSATION_HEADER, "@").rpartition("@")[2]

    @contextmanager
    def asked_meanwhile(self) -> Iterator[list[str]]:
        """One new conversation after the other; any that fails fails the test at the end."""
        revisions: list[str] = []
        faults: list[BaseException] = []
        ended = threading.Event()

        def keep_asking() -> None:
            try:
                while not ended.wait(0.2):
                    revisions.append(self.ask(f"What is it? {len(revisions)}"))
            except BaseException as error:  # told below, in the test's own thread
                faults.append(error)

        thread = threading.Thread(target=keep_asking)
        thread.start()
        try:
            yield revisions
        finally:
            ended.set()
            thread.join()
        assert not faults, faults


@pytest.fixture
def resource(demo_cluster: LocalCluster, applied: Callable[[str], None]) -> Iterator[Resource]:
    applied(MANIFEST)
    ready = lambda: conditions(demo_cluster, NAME).get("Ready", {}).get("status") == "True"  # noqa: E731
    eventually(ready, "the first revision should serve", 420)
    with demo_cluster.endpoint(tour.NAMESPACE, NAME, names.API_PORT) as url:
        yield Resource(demo_cluster, url)


def test_a_canary_is_promoted_and_the_next_one_aborted(resource: Resource) -> None:
    first = resource.pointer()
    resource.annotate(canary_weight="50")
    resource.change(8)
    followed = lambda: resource.rollout().get("state") == "Paused"  # noqa: E731
    eventually(followed, "the canary should have its share", 240)
    second: str = resource.rollout()["canaryRevision"]
    before = resource.pods()
    assert {revision for revision, _ in before.values()} == {first, second}
    answered = [resource.ask(f"How many circles are there? {number}") for number in range(8)]
    assert (answered.count(first), answered.count(second)) == (4, 4)

    with resource.asked_meanwhile() as revisions:
        resource.annotate(rollout_action=f"promote:{second}")
        eventually(lambda: resource.pointer() == second, "the Service should move")
        replaced = lambda: {held[0] for held in resource.pods().values()} == {second}  # noqa: E731
        eventually(replaced, "the old pods should go", 240)
    assert revisions
    assert resource.pods() == {name: held for name, held in before.items() if held[0] == second}

    resource.change(9)
    eventually(
        lambda: resource.rollout().get("canaryRevision", "") not in {"", second}, "a third revision"
    )
    third: str = resource.rollout()["canaryRevision"]
    # The weight is of the resource: the next change gets it, too.
    eventually(followed, "the third revision should have its share", 240)
    with resource.asked_meanwhile() as revisions:
        resource.annotate(rollout_action=f"abort:{third}")
        eventually(lambda: resource.rollout()["state"] == "Aborted", "nothing should be left", 240)
        num_before = len(revisions)
        eventually(lambda: len(revisions) > num_before + 2, "stable should answer on")
    assert third not in revisions[num_before + 1 :]
    assert resource.pointer() == second
    eventually(replaced, "the aborted pods should go", 240)
