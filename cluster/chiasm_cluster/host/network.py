"""The cluster's network: one namespace with a bridge (the switch), one namespace per node.

    host  10.S.0.1 ── veth ──┐
                             bridge in the switch namespace (no addresses, no filter rules)
    node i  10.S.0.(10+i) ───┘      pods 10.S.(16+i).0/24      Services 10.S.96.0/20

The host has routes to nodes, pods and Services. Nothing inside has a route to the outside: an
image that is not here is refused at once instead of after a time-out. All interfaces but the
host's veth live inside the namespaces and vanish with them.
"""

from __future__ import annotations

import ipaddress
import json

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host.commands import run, succeeds
from chiasm_cluster.state import Cluster, Node, all_clusters

_SUBNETS = range(89, 128)


def free_subnet() -> int:
    """The first S whose 10.S.0.0/16 neither this machine's routes nor another cluster uses.

    Raises: ClusterError when none is left.
    """
    taken = _routed_networks() + [cluster.network for cluster in all_clusters()]
    for subnet in _SUBNETS:
        candidate = ipaddress.IPv4Network(f"10.{subnet}.0.0/16")
        if not any(candidate.overlaps(network) for network in taken):
            return subnet
    raise ClusterError(
        f"All networks from 10.{_SUBNETS[0]}.0.0/16 to 10.{_SUBNETS[-1]}.0.0/16 are in use on this "
        "machine; take another cluster down or remove a route."
    )


def _routed_networks() -> list[ipaddress.IPv4Network]:
    """Every IPv4 destination in this machine's routing tables but the default route."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    return [
        ipaddress.IPv4Network(route["dst"], strict=False)
        for route in routes
        if route["dst"] != "default"
    ]


def is_whole(cluster: Cluster) -> bool:
    """Whether the host's cable and its routes are there."""
    if not succeeds(["ip", "link", "show", cluster.host_interface]):
        return False
    routes = json.loads(run(["ip", "-json", "route", "show", "dev", cluster.host_interface]))
    wanted = {cluster.service_network, *(node.pod_network for node in cluster.nodes)}
    return wanted <= {route["dst"] for route in routes}


def make(cluster: Cluster) -> None:
    """Make all namespaces, cables, addresses and routes; `remove` must have run before."""
    switch = cluster.switch_namespace
    run(["ip", "netns", "add", switch])
    _batch(
        """
        link add br0 type bridge
        link set lo up
        link set br0 up
        """,
        namespace=switch,
    )
    run(["ip", "link", "add", cluster.host_interface, "type", "veth", "peer", "name", "host",
         "netns", switch])  # fmt: skip
    _batch("link set host master br0\nlink set host up", namespace=switch)
    for node in cluster.nodes:
        _plug_in(cluster, node)
    _batch(
        f"""
        addr add {cluster.host_address}/24 dev {cluster.host_interface}
        link set {cluster.host_interface} up
        route add {cluster.service_network} via {cluster.api_address}
        """
        + "\n".join(f"route add {node.pod_network} via {node.address}" for node in cluster.nodes)
    )


def _plug_in(cluster: Cluster, node: Node) -> None:
    """Make one node's namespace and its cable to the switch.

    The node's own programs reach Services too (the API server asks webhooks): kube-proxy changes
    the destination of what a program sends only where a route lets it be sent.
    """
    switch = cluster.switch_namespace
    run(["ip", "netns", "add", node.namespace])
    _batch(
        f"""
        link add {node.name} type veth peer name eth0 netns {node.namespace}
        link set {node.name} master br0
        link set {node.name} up
        """,
        namespace=switch,
    )
    others = [other for other in cluster.nodes if other.number != node.number]
    _batch(
        f"""
        link set lo up
        addr add {node.address}/24 dev eth0
        link set eth0 up
        route add unreachable default
        route add {cluster.service_network} dev eth0
        """
        + "\n".join(f"route add {other.pod_network} via {other.address}" for other in others),
        namespace=node.namespace,
    )
    inside = ["nsenter", f"--net=/run/netns/{node.namespace}"]
    run([*inside, "sysctl", "-qw", "net.ipv4.ip_forward=1"])


def remove(cluster: Cluster) -> None:
    """Remove whatever there is of the cluster's network; nothing there is fine too."""
    if succeeds(["ip", "link", "show", cluster.host_interface]):
        run(["ip", "link", "delete", cluster.host_interface])
    ours = {cluster.switch_namespace, *(node.namespace for node in cluster.nodes)}
    for entry in json.loads(run(["ip", "-json", "netns", "list"]) or "[]"):
        if entry["name"] in ours:
            run(["ip", "netns", "delete", entry["name"]])


def _batch(commands: str, namespace: str | None = None) -> None:
    """Run several `ip` commands at once, inside `namespace` when given."""
    where = ["-netns", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="\n".join(map(str.strip, commands.splitlines())))
