"""What a person wants to know about a cluster: nodes, parts, memory, addresses, versions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from chiasm_cluster.host.commands import run
from chiasm_cluster.host.processes import memory_bytes
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node import carrier
from chiasm_cluster.node.worker import ctr
from chiasm_cluster.state import Cluster, Node

_MIB = 1024**2


@dataclass(frozen=True)
class Part:
    """One running program of a node."""

    node: str
    name: str
    pid: int | None
    num_starts: int
    memory_bytes: int


def describe(cluster: Cluster) -> str:
    """The whole report as text."""
    sections = [_facts(cluster), _nodes(cluster), _parts(cluster), _images(cluster)]
    return "\n\n".join(sections)


def parts(node: Node) -> list[Part]:
    """The programs of `node` as its supervisor sees them, with the pids that the host sees."""
    status_file = node.run_dir / "status.json"
    unshare = carrier.find(node)
    if unshare is None or not status_file.exists():
        return []
    host_pids = {
        inner_pid: process.pid
        for supervisor in unshare.children()
        for process in supervisor.children()
        if (inner_pid := process.innermost_pid) is not None
    }
    found = []
    for name, noted in json.loads(status_file.read_text()).items():
        pid = host_pids.get(noted["pid"])
        found.append(
            Part(node.name, name, pid, noted["num_starts"], memory_bytes(pid) if pid else 0)
        )
    return found


def _facts(cluster: Cluster) -> str:
    rows = [
        ("cluster", cluster.name),
        ("API server", cluster.api_url),
        ("kubeconfig", str(cluster.kubeconfig)),
        ("Services", cluster.service_network),
        ("pods", cluster.pod_network),
        ("logs", str(cluster.nodes[0].state_dir / "logs")),
    ]
    return table(rows)


def _nodes(cluster: Cluster) -> str:
    return run([*cluster.kubectl, "get", "nodes", "-o", "wide"], timeout=15).rstrip()


def _parts(cluster: Cluster) -> str:
    rows = [("NODE", "PART", "PID", "STARTS", "MEMORY")]
    total = 0
    for node in cluster.nodes:
        for part in parts(node):
            total += part.memory_bytes
            pid = str(part.pid) if part.pid else "down"
            memory = f"{part.memory_bytes / _MIB:.0f} MiB"
            rows.append((part.node, part.name, pid, str(part.num_starts), memory))
    rows.append(("", "all", "", "", f"{total / _MIB:.0f} MiB"))
    return table(rows)


def _images(cluster: Cluster) -> str:
    rows = [("NODE", "IMAGE", "DIGEST")]
    for node in cluster.nodes:
        for name, digest in sorted(ImageStore(ctr(cluster, node)).digests().items()):
            rows.append((node.name, name, digest))
    return table(rows)


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """The rows with their columns aligned."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
