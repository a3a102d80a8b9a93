"""Two revisions of the demo model on this machine, each a worker and a sidecar of its own, with
tiers, a plan that divides conversations, and secrets from a real OpenBao.

A pod's processes are the ones that the operator starts, with the same files; what is missing is
Kubernetes around them.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from chiasm_contract.config import EngineLimits, SidecarConfig, WorkerConfig
from chiasm_contract.configuration import Configuration
from chiasm_contract.tiers import BlockService, BlockTiers
from chiasm_contract.traffic import TrafficPlan, Version

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "demo" / "model"
MODEL_ID = "shelf-reader"
NAMESPACE, RESOURCE = "vision", "shelf-reader"
STABLE, CANARY = "v1-000000000a", "v1-000000000b"
_READY_SECONDS = 900.0


@dataclass(frozen=True)
class Secrets:
    """Where pods get their configuration: the servers' addresses, and a token for the first."""

    vault: str
    token_path: Path
    valkey_port: int


@dataclass
class Pod:
    """A worker and a sidecar.

    Attributes:
        ports: of the API and of the metrics.
    """

    name: str
    revision: str
    folder: Path
    ports: tuple[int, int]
    plan_file: Path
    secrets: Secrets
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of the API."""
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def metrics(self) -> str:
        """host:port of its metrics."""
        return f"127.0.0.1:{self.ports[1]}"

    @property
    def labels(self) -> Mapping[str, str]:
        """What a scrape in Kubernetes adds."""
        return {"namespace": NAMESPACE, "resource": RESOURCE, "pod": self.name}

    def start(self) -> None:
        """Start both processes."""
        self.folder.mkdir(parents=True)
        for name, config in (("sidecar", self._sidecar()), ("worker", self._worker())):
            path = self.folder / f"{name}.json"
            path.write_text(config.model_dump_json())
            command = [sys.executable, "-m", "chiasm_cli", name, "run", "--config", str(path)]
            with (self.folder / f"{name}.log").open("ab") as log:
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def stop(self) -> None:
        """End both."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_ready(self) -> None:
        """Until it takes requests."""
        until = time.monotonic() + _READY_SECONDS
        while time.monotonic() < until and all(each.poll() is None for each in self._processes):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/ready").status_code == 200:
                    return
            time.sleep(0.2)
        words = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
        raise SystemExit(f"{self.name} did not become ready:\n{words}")

    def _worker(self) -> WorkerConfig:
        return WorkerConfig(
            model_id=MODEL_ID,
            model_path=MODEL,
            num_threads=1,
            engine=EngineLimits(kv_cache_bytes=2**25, max_num_seqs=8),
            block_service=BlockService(socket_path=self.folder / "kv.sock"),
            socket_path=self.folder / "worker.sock",
        )

    def _sidecar(self) -> SidecarConfig:
        current = self.folder / "current"
        current.mkdir()
        tiers = {
            "socket_path": self.folder / "kv.sock",
            "staging_path": self.folder / "kv.staging",
            "host_bytes": 2**26,
            "disk": {"path": self.folder / "blocks", "max_bytes": 2**27},
            "valkey": {
                "host": "127.0.0.1",
                "port": self.secrets.valkey_port,
                "username_path": current / "store" / "username",
                "password_path": current / "store" / "password",
            },
        }
        (self.folder / "blocks").mkdir()
        return SidecarConfig(
            model_id=MODEL_ID,
            worker_socket=self.folder / "worker.sock",
            host="127.0.0.1",
            api_port=self.ports[0],
            metrics_port=self.ports[1],
            revision=self.revision,
            traffic_file=self.plan_file,
            tiers=BlockTiers.model_validate(tiers),
            configuration=_configuration(current, self.secrets),
        )


def _configuration(current: Path, secrets: Secrets) -> Configuration:
    store = {
        "name": "store", "kind": "database", "mount": "database", "entry": "app", "leased": True,
        "uses": ("valkey",),
    }  # fmt: skip
    settings = {"name": "settings", "kind": "kv", "mount": "secret", "entry": "app"}
    vault: dict[str, Any] = {
        "address": secrets.vault, "role": "chiasm", "token_path": secrets.token_path,
    }  # fmt: skip
    return Configuration.model_validate(
        {
            "environment": "prod-canary",
            "sources": (store, settings),
            "vault": vault,
            "current_path": current,
        }
    )


def write_plan(path: Path, stable: Pod, canary: Pod, share: int) -> None:
    """The plan that both follow."""

    def version(pod: Pod) -> Version:
        return Version(revision=pod.revision, address=pod.url.removeprefix("http://"))

    plan = TrafficPlan(
        epoch=1,
        window=1,
        stable=version(stable),
        canary=version(canary),
        share=share,
        mirror=share,
        members=(stable.name,),
        member_addresses=(stable.metrics,),
    )
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(plan.model_dump(mode="json")))
    fresh.rename(path)


@contextlib.contextmanager
def running(*pods: Pod) -> Iterator[None]:
    """Run pods while the block runs; it begins once they take requests."""
    try:
        for pod in pods:
            pod.start()
        for pod in pods:
            pod.wait_ready()
        yield
    finally:
        for pod in pods:
            pod.stop()
