"""The operator as a process of its own against the test cluster, and a look at what it made."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
GROUP = "/apis/chiasm.dev/v1alpha1"
OURS = "labelSelector=app.kubernetes.io/managed-by%3Dchiasm-operator"
CHILDREN = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ControllerRevision": "/apis/apps/v1/namespaces/{}/controllerrevisions",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
}
# Pods that stay where the scheduler leaves them: these tests are about objects, not about images.
NOWHERE = {"nodeSelector": {"chiasm.dev/no-such-node": "true"}}


class OperatorProcess:
    """`chiasm operator run`, which can be killed and started again."""

    def __init__(
        self,
        kubeconfig: Path,
        namespaces: str,
        log: Path,
        *,
        resync_seconds: int = 5,
        stall_seconds: int = 120,
        **more: object,
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.health_port = free.getsockname()[1]
        self._log = log
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "CHIASM_OPERATOR_WORKER_IMAGE": "example.invalid/worker:1",
            "CHIASM_OPERATOR_SIDECAR_IMAGE": "example.invalid/sidecar:1",
            "CHIASM_OPERATOR_SIDECAR_PEERS_IMAGE": "example.invalid/sidecar-peers:1",
            "CHIASM_OPERATOR_WATCH_NAMESPACES": namespaces,
            "CHIASM_OPERATOR_HEALTH_HOST": "127.0.0.1",
            "CHIASM_OPERATOR_HEALTH_PORT": str(self.health_port),
            "CHIASM_OPERATOR_RESYNC_SECONDS": str(resync_seconds),
            "CHIASM_OPERATOR_STALL_SECONDS": str(stall_seconds),
            "CHIASM_OPERATOR_UNSETTLED_SECONDS": "1",
            "CHIASM_OPERATOR_NAMESPACE": namespaces.split(",", maxsplit=1)[0],
            # A process that is killed and started again has the same seat.
            "CHIASM_OPERATOR_IDENTITY": f"operator-{self.health_port}",
            **{f"CHIASM_OPERATOR_{name.upper()}": str(value) for name, value in more.items()},
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.webhook_port = 0

    def start(self) -> None:
        command = [sys.executable, "-m", "chiasm_cli", "operator", "run"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=self._environment, stdout=output, stderr=output
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)  # one that is stopped hears it now
            self._process.wait(timeout=30)
            self._process = None

    def send(self, number: int) -> None:
        """Send a signal and wait for nothing."""
        assert self._process is not None
        self._process.send_signal(number)

    def health(self) -> tuple[int, dict[str, Any]] | None:
        """Status and body of /healthz; None when nobody answers."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5)
        except httpx.TransportError:
            return None
        return answer.status_code, answer.json()

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture(scope="session")
def crd(kubectl: Callable[..., str]) -> None:
    """The CRD, installed."""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    kubectl("wait", "--for=condition=Established", "crd/multimodalinferences.chiasm.dev")


@pytest.fixture
def make_operator(crd: None, tmp_path: Path) -> Iterator[Callable[..., OperatorProcess]]:
    """Makes an operator for a namespace, to be killed; not started yet."""
    made: list[OperatorProcess] = []

    def make(kubeconfig: Path, watched: str, **settings: Any) -> OperatorProcess:
        log = tmp_path / f"{watched}-{len(made)}.log"
        made.append(OperatorProcess(kubeconfig, watched, log, **settings))
        return made[-1]

    yield make
    for process in made:
        process.kill()
        print(process.log)


@pytest.fixture
def own_operator(
    make_operator: Callable[..., OperatorProcess], kubeconfig: Path, namespace: str
) -> OperatorProcess:
    """An operator for the test's own namespace, with all permissions; not started yet."""
    return make_operator(kubeconfig, namespace)


class Namespace:
    """What is in one namespace, and how to change it."""

    def __init__(self, api: httpx.Client, name: str) -> None:
        self.api = api
        self.name = name

    def path(self, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self.name}/multimodalinferences/{name}".rstrip("/")

    def get(self, path: str) -> dict[str, Any]:
        response = self.api.get(path)
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found

    def apply(self, name: str, **spec: Any) -> dict[str, Any]:
        """Apply a resource named `name`; sections by keyword, a minimal spec without any."""
        full = {"model": {"source": {"builtin": "demo"}}, "podTemplate": NOWHERE, **spec}
        body = {
            "apiVersion": "chiasm.dev/v1alpha1",
            "kind": "MultimodalInference",
            "metadata": {"name": name},
            "spec": full,
        }
        response = self.api.patch(
            self.path(name),
            params={"fieldManager": "test", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=yaml.safe_dump(body),
        )
        assert response.is_success, response.text
        stored: dict[str, Any] = response.json()
        return stored

    def annotate(self, name: str, **annotations: str | None) -> None:
        """canary_weight="5" sets chiasm.dev/canary-weight; None removes it."""
        full = {f"chiasm.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
        self.patch(self.path(name), {"metadata": {"annotations": full}})

    def patch(self, path: str, body: dict[str, Any]) -> None:
        response = self.api.patch(
            path, headers={"Content-Type": "application/merge-patch+json"}, json=body
        )
        assert response.is_success, response.text

    def delete(self, path: str, **options: str) -> None:
        response = self.api.delete(path, params=options)
        assert response.status_code in {200, 202, 404}, response.text

    def children(self, owner: str | None = None) -> dict[tuple[str, str], dict[str, Any]]:
        """(kind, name) -> manifest of everything that an operator made, for `owner` only."""
        found = {}
        chosen = OURS + (f"%2Cchiasm.dev%2Fname%3D{owner}" if owner else "")
        for kind, pattern in CHILDREN.items():
            for item in self.get(f"{pattern.format(self.name)}?{chosen}")["items"]:
                found[kind, item["metadata"]["name"]] = item
        return found

    def child(self, kind: str, name: str) -> str:
        """Path of a child."""
        return f"{CHILDREN[kind].format(self.name)}/{name}"

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(self.path(name)).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.status(name).get("conditions", [])
        return next((item for item in conditions if item["type"] == kind), {})

    def events(self, name: str) -> list[dict[str, Any]]:
        selector = f"involvedObject.kind=MultimodalInference,involvedObject.name={name}"
        path = f"/api/v1/namespaces/{self.name}/events"
        found: list[dict[str, Any]] = self.api.get(path, params={"fieldSelector": selector}).json()[
            "items"
        ]
        return found

    def reasons(self, name: str) -> set[str]:
        """Those of its events, each of which is posted behind the status that it is about."""
        return {event["reason"] for event in self.events(name)}


class ReadyMaker(threading.Thread):
    """Says of each unscheduled pod that it is ready, as a kubelet would: rollouts then complete."""

    def __init__(self, api: httpx.Client, namespace: str) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            # On a machine that has no time for it the API server may not answer; a kubelet too
            # would ask again.
            with contextlib.suppress(httpx.TransportError):
                self._mark_new_pods()

    def _mark_new_pods(self) -> None:
        for pod in self._api.get(self._path).json().get("items", []):
            conditions = pod["status"].get("conditions", [])
            if not any(item["type"] == "Ready" for item in conditions):
                self._mark(pod["metadata"]["name"])

    def _mark(self, name: str) -> None:
        ready = [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in ("Ready", "ContainersReady", "Initialized")
        ]
        self._api.patch(
            f"{self._path}/{name}/status",
            headers={"Content-Type": "application/strategic-merge-patch+json"},
            json={"status": {"phase": "Running", "conditions": ready}},
        )

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture(scope="session")
def namespaces(api: httpx.Client) -> Iterator[tuple[str, str]]:
    """Two namespaces for all tests that share one operator."""
    names = []
    # Whatever the operator makes must pass the strictest of Kubernetes' own standards.
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for prefix in ("calm-", "trouble-"):
        body = {"metadata": {"generateName": prefix, "labels": labels}}
        created = api.post("/api/v1/namespaces", json=body)
        names.append(created.json()["metadata"]["name"])
    yield names[0], names[1]
    for name in names:
        api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def operator(
    crd: None,
    kubeconfig: Path,
    namespaces: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    """A running operator for both shared namespaces."""
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    process = OperatorProcess(kubeconfig, ",".join(namespaces), log)
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def calm(
    api: httpx.Client, namespaces: tuple[str, str], operator: OperatorProcess
) -> Iterator[Namespace]:
    """A namespace where an operator is at work and pods become ready."""
    maker = ReadyMaker(api, namespaces[0])
    maker.start()
    yield Namespace(api, namespaces[0])
    maker.end()


@pytest.fixture(scope="session")
def trouble(api: httpx.Client, namespaces: tuple[str, str], operator: OperatorProcess) -> Namespace:
    """A namespace where an operator is at work and no pod is helped."""
    return Namespace(api, namespaces[1])


@pytest.fixture
def make_world(
    api: httpx.Client, make_namespace: Callable[[], str]
) -> Iterator[Callable[[], Namespace]]:
    """Makes a namespace in which pods become ready."""
    makers: list[ReadyMaker] = []

    def make(name: str | None = None) -> Namespace:
        world = Namespace(api, name or make_namespace())
        makers.append(ReadyMaker(api, world.name))
        makers[-1].start()
        return world

    yield make
    for maker in makers:
        maker.end()


@pytest.fixture
def own_world(make_world: Callable[..., Namespace], namespace: str) -> Namespace:
    """The test's own namespace, in which pods become ready; see `own_operator`."""
    return make_world(namespace)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A resource name of the test's own."""
    digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    return f"reader-{digest}"


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until something holds; the limit only ends a wait that would never end."""

    def wait(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, what
            time.sleep(0.1)

    return wait
