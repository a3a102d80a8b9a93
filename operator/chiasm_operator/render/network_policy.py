"""The NetworkPolicy: in through the two ports, out to nowhere but sidecars of the same resource,
which answer for another revision, and a Valkey that holds blocks; and to DNS for their names.

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
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": target.metadata(),
        "spec": {
            "podSelector": {"matchLabels": target.selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": _ports()}, *_between_peers(target, "from")],
            "egress": _egress(target),
        },
    }


def _ports() -> list[dict[str, Any]]:
    """The API, and the port where sidecars also tell each other their conversations."""
    return [{"port": port, "protocol": "TCP"} for port in (names.API_PORT, names.METRICS_PORT)]


def _egress(target: Target) -> list[dict[str, Any]]:
    """To pods of the same resource, to the Valkey's port wherever its name leads, and to DNS."""
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    tiers = target.spec.tiers
    valkey = tiers.valkey if tiers is not None else None
    anywhere = [{"port": valkey.port, "protocol": "TCP"}, *dns] if valkey is not None else dns
    return [
        {"ports": anywhere},
        {"to": [{"podSelector": {"matchLabels": target.selector}}], "ports": _ports()},
        *_between_peers(target, "to"),
    ]


def _between_peers(target: Target, direction: str) -> list[dict[str, Any]]:
    if not target.has_peers:
        return []
    pods = [{"podSelector": {"matchLabels": target.selector}}]
    return [{direction: pods, "ports": service.peer_ports(target)}]
