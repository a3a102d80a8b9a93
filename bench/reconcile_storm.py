"""500 MultimodalInferences at once on a real API server, one operator process.

From the request that creates a resource to the arrival of the last of its children in a watch:
`p50_seconds`, `p99_seconds`, `max_seconds`. `api_calls_per_resource` is the API server's own count
of what the operator's account asked for until every resource was Healthy, and
`calls_per_resource_minute_at_rest` the same in the minute after that. Nodes run nothing: pods are
said to be ready by hand, after all children are there. `bare_client_seconds` is what a client takes
that decides nothing and only applies the same children once more, with no operator running.
Client, watches, API server, etcd, controllers and operator share this machine's cores.

    python bench/reconcile_storm.py [--resources 500] [--kubeconfig FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from reporting import publish
from storm.api import Api, give_the_operator_a_flow, remove_the_flow
from storm.bare import OWNER, write_again

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = "storm"
HOME = "chiasm-storm"  # where the operator's own objects are
NUM_NAMESPACES = 10
GOAL_SECONDS = 10.0
PATIENCE_SECONDS = 420.0
REST_SECONDS = 60.0
MANAGER = "app.kubernetes.io/managed-by=chiasm-operator"
COLLECTIONS = (
    "/api/v1/serviceaccounts", "/api/v1/configmaps", "/api/v1/services",
    "/apis/apps/v1/deployments", "/apis/apps/v1/controllerrevisions",
    "/apis/networking.k8s.io/v1/networkpolicies", "/apis/policy/v1/poddisruptionbudgets",
)  # fmt: skip
RESOURCES = "/apis/chiasm.dev/v1alpha1/{}multimodalinferences"


class Storm:
    """What happened when: creation of each resource, arrival of each child."""

    def __init__(self, api: Api, num_resources: int) -> None:
        self.api = api
        # Of an earlier run's namespaces some may still be going.
        run = secrets.token_hex(2)
        self.namespaces = [f"storm-{run}-{number}" for number in range(NUM_NAMESPACES)]
        self.bare_namespaces = {name: f"bare-{name}" for name in self.namespaces}
        self.names = [
            (self.namespaces[number % NUM_NAMESPACES], f"reader-{number:04d}")
            for number in range(num_resources)
        ]
        self.asked: dict[tuple[str, str], float] = {}
        self.arrived: dict[tuple[str, str], dict[str, float]] = {}

    async def follow(self, collection: str) -> None:
        async for when, change in self.api.watch(collection, f"labelSelector={MANAGER}"):
            if change["type"] != "ADDED":
                continue
            metadata = change["object"]["metadata"]
            key = (metadata["namespace"], metadata["labels"][OWNER])
            child = f"{collection}/{metadata['name']}"
            self.arrived.setdefault(key, {})[child] = when

    async def create(self) -> None:
        """As quickly as one client can: eight requests at a time."""
        waiting = list(reversed(self.names))

        async def one_after_the_other() -> None:
            while waiting:
                namespace, name = waiting.pop()
                body = {
                    "apiVersion": "chiasm.dev/v1alpha1",
                    "kind": "MultimodalInference",
                    "metadata": {"name": name},
                    "spec": {
                        "model": {"source": {"builtin": "demo"}},
                        "podTemplate": {"nodeSelector": {"chiasm.dev.storm/nowhere": "true"}},
                    },
                }
                self.asked[namespace, name] = time.monotonic()
                path = RESOURCES.format(f"namespaces/{namespace}/")
                await self.api.call("POST", path, body)

        await asyncio.gather(*(one_after_the_other() for _ in range(8)))

    async def settle(self) -> None:
        """Until no child has come for five seconds and every resource has as many as the first."""
        await _until(self._complete, "every child to be there")

    async def _complete(self) -> bool:
        counts = {len(self.arrived.get(key, ())) for key in self.names}
        if len(counts) != 1 or 0 in counts:
            return False
        return time.monotonic() - max(max(each.values()) for each in self.arrived.values()) > 5

    def seconds(self) -> list[float]:
        return sorted(max(self.arrived[key].values()) - self.asked[key] for key in self.names)

    async def all_healthy(self) -> bool:
        items = (await self.api.call("GET", RESOURCES.format("")))["items"]
        healthy = [item for item in items if item.get("status", {}).get("phase") == "Healthy"]
        return len(healthy) == len(self.names)


async def _until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"reconcile_storm: waited {seconds:.0f} s for {what}")
        await asyncio.sleep(0.5)


async def say_that_pods_are_ready(api: Api, done: asyncio.Event) -> None:
    """As kubelets would, one pod after the other."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Ready", "ContainersReady", "Initialized")
    ]
    body = {"status": {"phase": "Running", "conditions": conditions}}
    kind = "application/strategic-merge-patch+json"
    while not done.is_set():
        pods = (await api.call("GET", f"/api/v1/pods?labelSelector={MANAGER}"))["items"]
        for pod in pods:
            if pod["status"].get("phase") != "Running":
                metadata = pod["metadata"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                await api.call("PATCH", f"{path}/status", body, kind)
        await asyncio.sleep(1)


async def measure(kubeconfig: Path, num_resources: int, log: Path) -> dict[str, Any]:
    api = Api(kubeconfig)
    storm = Storm(api, num_resources)
    try:
        await give_the_operator_a_flow(api, HOME)
        for name in storm.namespaces:
            await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        with operator(kubeconfig, log) as process:
            figures = await _figures(api, storm, process.pid)
        bare = await write_again(api, COLLECTIONS, MANAGER, storm.bare_namespaces)
        ratio = round(figures["max_seconds"] / bare, 2)
        return {**figures, "bare_client_seconds": round(bare, 2), "max_vs_bare_client": ratio}
    finally:
        for name in (*storm.namespaces, *storm.bare_namespaces.values()):
            await api.call("DELETE", f"/api/v1/namespaces/{name}")
        await remove_the_flow(api)
        await api.close()


async def _figures(api: Api, storm: Storm, operator_id: int) -> dict[str, Any]:
    num_resources, load = len(storm.names), os.getloadavg()[0]
    watches = [asyncio.create_task(storm.follow(each)) for each in COLLECTIONS]
    done = asyncio.Event()
    try:
        await _until(lambda: _leads(api), "the operator to lead; its log says why", 60)
        await asyncio.sleep(2)
        before = await api.counts()
        cpu = _cpu_seconds(operator_id)
        await storm.create()
        await storm.settle()
        made = await api.counts()
        cpu = _cpu_seconds(operator_id) - cpu
        ready = asyncio.create_task(say_that_pods_are_ready(api, done))
        await _until(storm.all_healthy, "every resource to be Healthy")
        done.set()
        await ready
        healthy = await api.counts()
        await asyncio.sleep(5)
        begin = await api.counts()
        await asyncio.sleep(REST_SECONDS)
        rest = (await api.counts()).calls - begin.calls
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    seconds = storm.seconds()
    created = max(storm.asked.values()) - min(storm.asked.values())
    return {
        "num_resources": num_resources,
        "num_children": sum(len(each) for each in storm.arrived.values()),
        "p50_seconds": round(statistics.median(seconds), 2),
        "p99_seconds": round(seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))], 2),
        "max_seconds": round(seconds[-1], 2),
        "goal_p99_seconds": GOAL_SECONDS,
        "created_within_seconds": round(created, 2),
        "api_calls_per_resource_to_children": round((made.calls - before.calls) / num_resources, 2),
        "api_calls_per_resource": round((healthy.calls - before.calls) / num_resources, 2),
        "calls_per_resource_minute_at_rest": round(rest / num_resources * 60 / REST_SECONDS, 3),
        "calls_per_minute_at_rest": round(rest * 60 / REST_SECONDS),
        "operator_cpu_seconds": round(cpu, 1),
        "api_server_cpu_seconds": round(made.cpu_seconds - before.cpu_seconds, 1),
        "load_at_start": round(load, 1),
    }


def _cpu_seconds(process: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _leads(api: Api) -> bool:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/chiasm"
    lease = await api.call("GET", path)
    return bool(lease.get("spec", {}).get("holderIdentity"))


@contextmanager
def operator(kubeconfig: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The operator as a process with the chart's own permissions."""
    rendered = _run(
        "helm", "template", "chiasm", "charts/chiasm", "-n", HOME,
        "--set", "webhook.enabled=false",
        "--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml",
    )  # fmt: skip
    kubectl = ("kubectl", "--kubeconfig", str(kubeconfig))
    _run(*kubectl, "apply", "--server-side", "--force-conflicts", "-f", "crds")
    _run(*kubectl, "create", "namespace", HOME, check=False)
    _run(*kubectl, "apply", "-f", "-", stdin=rendered)
    token = _run(*kubectl, "create", "token", "chiasm", "-n", HOME, "--duration=2h").strip()
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    with tempfile.TemporaryDirectory() as folder:
        limited = Path(folder) / "kubeconfig"
        limited.touch(mode=0o600)
        limited.write_text(yaml.safe_dump(config))
        environment = {
            **os.environ,
            "KUBECONFIG": str(limited),
            "CHIASM_OPERATOR_WORKER_IMAGE": "example.invalid/worker:1",
            "CHIASM_OPERATOR_SIDECAR_IMAGE": "example.invalid/sidecar:1",
            "CHIASM_OPERATOR_SIDECAR_PEERS_IMAGE": "example.invalid/sidecar-peers:1",
            "CHIASM_OPERATOR_NAMESPACE": HOME,
            "CHIASM_OPERATOR_LEASE_NAME": "chiasm",
            "CHIASM_OPERATOR_HEALTH_HOST": "127.0.0.1",
            "CHIASM_OPERATOR_HEALTH_PORT": "18089",
            "CHIASM_OPERATOR_LOG_LEVEL": "WARNING",
        }
        command = [sys.executable, "-m", "chiasm_cli", "operator", "run"]
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60)
            _run(*kubectl, "delete", "namespace", HOME, check=False)
            for kind in ("clusterrole", "clusterrolebinding"):
                _run(*kubectl, "delete", kind, "chiasm", check=False)


def _run(program: str, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
    from chiasm_cluster.build.binaries import ensure_binaries  # noqa: PLC0415
    from chiasm_cluster.settings import Settings  # noqa: PLC0415

    path = ensure_binaries(Settings().cache_dir, lambda _: None) / program
    ran = subprocess.run(
        [str(path), *arguments], cwd=ROOT, input=stdin, capture_output=True, text=True, check=False
    )
    if check and ran.returncode:
        raise SystemExit(f"reconcile_storm: {program} {arguments[0]}: {ran.stderr}")
    return ran.stdout


def _cluster(*arguments: str) -> str:
    command = [sys.executable, "-m", "chiasm_cluster", *arguments, "--name", CLUSTER]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"reconcile_storm: chiasm_cluster {arguments[0]}: {ran.stderr}")
    return ran.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=500)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster that runs; else one is started")
    parser.add_argument("--log", type=Path, default=Path(tempfile.gettempdir()) / "storm.log")
    options = parser.parse_args()
    if options.kubeconfig:
        figures = asyncio.run(measure(options.kubeconfig, options.resources, options.log))
    else:
        _cluster("up")
        try:
            kubeconfig = Path(_cluster("kubeconfig").strip())
            figures = asyncio.run(measure(kubeconfig, options.resources, options.log))
        finally:
            _cluster("down")
    publish("reconcile_storm", figures)


if __name__ == "__main__":
    main()
