"""The NetworkPolicy: in through the two ports, out to nowhere.

Pods need nothing from the network: weights come from a mount, pictures inside the request.
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
            "egress": [],
        },
    }
