"""The NetworkPolicy: in through the two ports, out to nowhere but where blocks are held.

With peers, pods of the resource reach each other's port for them, and nobody else does. NIXL has a
second one, which asks nobody who he is, and behind which lies all memory of the sidecar.

Pods need nothing else from the network: weights come from a mount, pictures inside the request.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render import service
from chiasm_operator.render.target import Target


def render(target: Target) -> dict[str, Any]:
    """The NetworkPolicy."""
    ports = [{"port": port, "protocol": "TCP"} for port in (names.API_PORT, names.METRICS_PORT)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": target.metadata(),
        "spec": {
            "podSelector": {"matchLabels": target.selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": ports}, *_between_peers(target, "from")],
            "egress": _egress(target),
        },
    }


def _egress(target: Target) -> list[dict[str, Any]]:
    """To the Valkey's port, wherever its name leads, to other pods, and to the DNS for both."""
    tiers = target.spec.tiers
    between = _between_peers(target, "to")
    valkey = tiers.valkey if tiers is not None else None
    if valkey is None and not between:
        return []
    ports = [{"port": valkey.port, "protocol": "TCP"}] if valkey is not None else []
    ports += [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    return [{"ports": ports}, *between]


def _between_peers(target: Target, direction: str) -> list[dict[str, Any]]:
    if not target.has_peers:
        return []
    pods = [{"podSelector": {"matchLabels": target.selector}}]
    return [{direction: pods, "ports": service.peer_ports(target)}]
