"""Which clusters exist on this machine and where their files lie.

Two folders per cluster: sockets, pid files and the record under /run (empty after a reboot of the
machine, as is the cluster), everything else under the user's cache folder. The record is written
before anything else is made, so that `down` always knows what there may be to remove.

Every name of a kernel object (namespace, interface, cgroup) is derived here from the cluster's
name, so that clusters of different names cannot touch each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from chiasm_cluster.errors import ClusterError

RUN_DIR = Path("/run/chiasm-cluster")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")
_RECORD = "cluster.json"


class Node(BaseModel):
    """One node: a set of namespaces with a kubelet and a container runtime in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: str
    subnet: int
    number: int
    state_dir: Path
    image_dir: Path

    @property
    def name(self) -> str:
        """The Node object's name."""
        return f"node-{self.number}"

    @property
    def namespace(self) -> str:
        """The network namespace's name."""
        return f"chiasm-{self.cluster}-{self.number}"

    @property
    def cgroup(self) -> str:
        """The cgroup under which the kubelet puts its pods, in every hierarchy."""
        return f"chiasm-{self.cluster}-{self.number}"

    @property
    def address(self) -> str:
        """Its address, reachable from the host."""
        return f"10.{self.subnet}.0.{10 + self.number}"

    @property
    def pod_network(self) -> str:
        """The addresses of its pods."""
        return f"10.{self.subnet}.{16 + self.number}.0/24"

    @property
    def run_dir(self) -> Path:
        """Sockets and the pid file; short, since a socket's path may have 107 characters."""
        return RUN_DIR / self.cluster / self.name

    @property
    def containerd_socket(self) -> Path:
        """Where the container runtime listens."""
        return self.run_dir / "containerd.sock"


class Cluster(BaseModel):
    """The record of one cluster, and the names of all that belongs to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_nodes: int
    subnet: int
    cluster_dir: Path
    binaries: Path
    kernel_settings: dict[str, str] = {}
    made_dirs: list[Path] = []

    @property
    def run_dir(self) -> Path:
        """Sockets, pid files, the record."""
        return RUN_DIR / self.name

    @property
    def state_dir(self) -> Path:
        """All that `down` deletes."""
        return self.cluster_dir / "run"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state_dir / "kubeconfig"

    @property
    def kubectl(self) -> list[str]:
        """kubectl, acting as the administrator; its arguments follow."""
        return [str(self.binaries / "kubectl"), f"--kubeconfig={self.kubeconfig}"]

    @property
    def nodes(self) -> list[Node]:
        """The nodes; the first also runs the control plane."""
        return [
            Node(
                cluster=self.name,
                subnet=self.subnet,
                number=number,
                state_dir=self.state_dir / f"node-{number}",
                image_dir=self.cluster_dir / "images" / f"node-{number}",
            )
            for number in range(1, self.num_nodes + 1)
        ]

    @property
    def switch_namespace(self) -> str:
        """The network namespace whose bridge joins the nodes and the host."""
        return f"chiasm-{self.name}"

    @property
    def host_interface(self) -> str:
        """The host's end of the cable into the switch; at most 15 characters."""
        return "chi-" + hashlib.sha256(self.name.encode()).hexdigest()[:10]

    @property
    def network(self) -> ipaddress.IPv4Network:
        """All addresses of this cluster."""
        return ipaddress.IPv4Network(f"10.{self.subnet}.0.0/16")

    @property
    def host_address(self) -> str:
        """The host's address on the nodes' network."""
        return f"10.{self.subnet}.0.1"

    @property
    def api_address(self) -> str:
        """The API server's address."""
        return self.nodes[0].address

    @property
    def api_url(self) -> str:
        """Where the API server answers."""
        return f"https://{self.api_address}:6443"

    @property
    def pod_network(self) -> str:
        """The addresses of all pods."""
        return f"10.{self.subnet}.16.0/20"

    @property
    def service_network(self) -> str:
        """The addresses of all Services."""
        return f"10.{self.subnet}.96.0/20"

    @property
    def api_service_address(self) -> str:
        """The address of the Service `kubernetes`: the first of the range."""
        return f"10.{self.subnet}.96.1"

    @property
    def dns_service_address(self) -> str:
        """The address of the Service `kube-dns`."""
        return f"10.{self.subnet}.96.10"

    def save(self) -> None:
        """Write the record, whole or not at all."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        unfinished = self.run_dir / f"{_RECORD}.new"
        unfinished.write_text(self.model_dump_json(indent=2))
        unfinished.replace(self.run_dir / _RECORD)


def checked_name(name: str) -> str:
    """`name` if it can be part of the names of interfaces and folders.

    Raises: ClusterError otherwise.
    """
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"{name!r} cannot name a cluster; use 1 to 30 lower-case letters, digits and hyphens, "
            "beginning and ending with a letter or digit."
        )
    return name


def find(name: str) -> Cluster | None:
    """The record of cluster `name`, or None when there is none."""
    record = RUN_DIR / checked_name(name) / _RECORD
    if not record.is_file():
        return None
    return Cluster.model_validate_json(record.read_text())


def required(name: str) -> Cluster:
    """The record of cluster `name`.

    Raises: ClusterError when there is none.
    """
    cluster = find(name)
    if cluster is None:
        raise ClusterError(
            f"No cluster {name!r} is up; start it with: python -m chiasm_cluster up --name {name}"
        )
    return cluster


def all_clusters() -> list[Cluster]:
    """Every cluster with a record, by name."""
    found = (find(path.parent.name) for path in sorted(RUN_DIR.glob(f"*/{_RECORD}")))
    return [cluster for cluster in found if cluster is not None]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock `name`: one command at a time changes the thing of that name."""
    RUN_DIR.mkdir(parents=True, exist_ok=True)
    with (RUN_DIR / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another command that holds {lock.name}.", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
