"""The NetworkPolicy: in through the two ports, out to nowhere but a Valkey that holds blocks.

Pods need nothing else from the network: weights come from a mount, pictures inside the request.
"""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

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
            "ingress": [{"ports": ports}],
            "egress": _egress(target),
        },
    }


def _egress(target: Target) -> list[dict[str, Any]]:
    """To the port of the Valkey, wherever its name leads, and to the DNS that says where."""
    tiers = target.spec.tiers
    if tiers is None or tiers.valkey is None:
        return []
    ports = [
        {"port": tiers.valkey.port, "protocol": "TCP"},
        {"port": 53, "protocol": "UDP"},
        {"port": 53, "protocol": "TCP"},
    ]
    return [{"ports": ports}]
