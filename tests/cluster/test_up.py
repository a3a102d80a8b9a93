"""The real cluster: two nodes that work together, and repair themselves."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_cluster import status
from chiasm_cluster.host import network
from chiasm_cluster.host.commands import run
from chiasm_cluster.host.processes import Process

pytestmark = pytest.mark.cluster

IMAGE = "docker.io/chiasm/operator:0.1.0"
WEB = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: docker.io/chiasm/operator:0.1.0
          command: [python3, -m, http.server, "8080", -d, /opt/chiasm]
          readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""
# A node's proxy knows of a pod a moment after the pod is ready; until then a Service refuses.
ASK = """
import sys, time, urllib.request
def ask(address, until):
    while True:
        try:
            return urllib.request.urlopen(f"http://{address}/", timeout=5).status
        except OSError as error:
            why = getattr(error, "reason", error)
        if not isinstance(why, ConnectionRefusedError) or time.monotonic() > until:
            return why
        time.sleep(0.2)
for address in sys.argv[1:]:
    print(ask(address, time.monotonic() + 30))
"""


@pytest.fixture(scope="module")
def web(two_nodes: Any) -> Any:
    """A web server on each node behind one Service."""
    two_nodes.kubectl("apply", "-f", "-", stdin=WEB)
    two_nodes.kubectl("rollout", "status", "daemonset/web", "--timeout=90s")
    return two_nodes


def pods(cluster: Any, selector: str = "app=web") -> list[dict[str, Any]]:
    listed = cluster.kubectl("get", "pods", "-l", selector, "-o", "json")
    found: list[dict[str, Any]] = json.loads(listed)["items"]
    return found


def run_pod(cluster: Any, name: str, spec: dict[str, Any]) -> str:
    """Run a pod to its end; its phase and log."""
    manifest = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", **spec},
    }  # fmt: skip
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    over = "jsonpath={.status.containerStatuses[0].state.terminated.reason}"
    cluster.kubectl("wait", f"pod/{name}", f"--for={over}", "--timeout=60s")
    reason = cluster.kubectl("get", f"pod/{name}", "-o", over)
    return f"{reason}: {cluster.kubectl('logs', name)}"


def test_a_pod_reaches_pods_on_both_nodes_and_the_service_by_name(web: Any) -> None:
    found = pods(web)
    assert {pod["spec"]["nodeName"] for pod in found} == {"node-1", "node-2"}
    addresses = [f"{pod['status']['podIP']}:8080" for pod in found]
    for pod in found:
        said = web.kubectl(
            "exec", pod["metadata"]["name"], "--", "python3", "-c", ASK, *addresses,
            "web", "web.default.svc.cluster.local",
        )  # fmt: skip
        assert said.split() == ["200"] * 4


def test_the_host_reaches_services_and_pods(web: Any) -> None:
    service = web.kubectl("get", "service/web", "-o", "jsonpath={.spec.clusterIP}")
    addresses = [service, *(f"{pod['status']['podIP']}:8080" for pod in pods(web))]
    said = run([sys.executable, "-c", ASK, *addresses])
    assert said.split() == ["200"] * 3


def test_nothing_outside_the_cluster_is_reachable(web: Any) -> None:
    pod = pods(web)[0]["metadata"]["name"]
    said = web.kubectl("exec", pod, "--", "python3", "-c", ASK, "198.51.100.1", "example.com")
    assert said.splitlines() == [
        "[Errno 113] No route to host",
        "[Errno -2] Name or service not known",
    ]


def test_an_image_that_is_not_here_is_refused_at_once(web: Any) -> None:
    web.kubectl("run", "absent", "--image=registry.example/absent:1", "--restart=Never")
    waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull"
    web.kubectl("wait", "pod/absent", f"--for={waiting}", "--timeout=30s")
    web.kubectl("delete", "pod/absent", "--now")


def test_a_claim_on_a_host_folder_and_an_image_as_a_volume(web: Any, readable_dir: Path) -> None:
    (readable_dir / "word").write_text("from the host")
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "shelf"},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadOnlyMany"],
                 "storageClassName": "", "hostPath": {"path": str(readable_dir)}},
    }  # fmt: skip
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shelf"},
        "spec": {"accessModes": ["ReadOnlyMany"], "storageClassName": "",
                 "volumeName": "shelf", "resources": {"requests": {"storage": "1Mi"}}},
    }  # fmt: skip
    web.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([volume, claim]))
    read = "print(open('/shelf/word').read(), open('/model/opt/chiasm/requirements.txt').read(1))"
    container = {
        "name": "reader", "image": IMAGE, "command": ["python3", "-c", read],
        "volumeMounts": [{"name": "shelf", "mountPath": "/shelf"},
                         {"name": "model", "mountPath": "/model"}],
    }  # fmt: skip
    volumes = [
        {"name": "shelf", "persistentVolumeClaim": {"claimName": "shelf"}},
        {"name": "model", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}},
    ]
    said = run_pod(web, "reader", {"containers": [container], "volumes": volumes})
    assert said.strip() == "Completed: from the host #"


def test_a_container_over_its_memory_limit_is_killed_for_it(web: Any) -> None:
    container = {
        "name": "eater", "image": IMAGE, "command": ["python3", "-c", "bytearray(10**9)"],
        "resources": {"limits": {"memory": "64Mi"}},
    }  # fmt: skip
    assert run_pod(web, "eater", {"containers": [container]}).startswith("OOMKilled")


def test_a_second_up_changes_nothing(web: Any) -> None:
    def parts() -> list[tuple[str, str, int | None, int]]:
        return [
            (part.node, part.name, part.pid, part.num_starts)
            for node in web.record.nodes
            for part in status.parts(node)
        ]

    before = parts()
    assert all(pid is not None for _, _, pid, _ in before)
    web.up(num_nodes=2)
    assert parts() == before


def test_status_shows_nodes_parts_and_images(web: Any, cli: Callable[..., str]) -> None:
    said = cli("status", "--name", web.name)
    for word in ("node-2", "kube-apiserver", "MiB", "v1.37.2", web.record.api_url, IMAGE, "sha256"):
        assert word in said


def test_a_part_that_is_killed_is_started_again(web: Any) -> None:
    def scheduler() -> status.Part:
        parts = status.parts(web.record.nodes[0])
        return next(part for part in parts if part.name == "kube-scheduler")

    before = scheduler()
    assert before.pid is not None
    process = Process.of(before.pid)
    assert process is not None
    process.send(signal.SIGKILL)
    for _ in range(600):
        after = scheduler()
        if after.pid not in {None, before.pid}:
            break
        time.sleep(0.1)
    assert after.num_starts == before.num_starts + 1


def test_up_after_everything_was_killed_keeps_what_was_stored(web: Any) -> None:
    web.kubectl("create", "configmap", "kept", "--from-literal=word=still-here")
    web.kill_everything()
    web.up(num_nodes=2)
    assert web.kubectl("get", "configmap/kept", "-o", "jsonpath={.data.word}") == "still-here"
    web.kubectl("rollout", "status", "daemonset/web", "--timeout=90s")
    web.kubectl("wait", "pod", "-l", "app=web", "--for=condition=Ready", "--timeout=90s")
    test_a_pod_reaches_pods_on_both_nodes_and_the_service_by_name(web)


def test_up_repairs_a_network_that_lost_its_cable(web: Any) -> None:
    run(["ip", "link", "delete", web.record.host_interface])
    assert not network.is_whole(web.record)
    web.up(num_nodes=2)
    assert network.is_whole(web.record)
    web.kubectl("wait", "pod", "-l", "app=web", "--for=condition=Ready", "--timeout=90s")
    test_the_host_reaches_services_and_pods(web)
