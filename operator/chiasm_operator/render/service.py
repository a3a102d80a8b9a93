"""The Service: the API for clients, the metrics for scrapers."""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render.target import Target


def url(target: Target) -> str:
    """Where the API answers inside the cluster."""
    return f"http://{target.name}.{target.resource.namespace}.svc:{names.API_PORT}"


def render(target: Target) -> dict[str, Any]:
    """The Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": target.metadata(),
        "spec": {
            "type": "ClusterIP",
            "selector": target.selector,
            "ports": [
                {"name": "http", "port": names.API_PORT, "targetPort": "http", "protocol": "TCP"},
                {
                    "name": "metrics",
                    "port": names.METRICS_PORT,
                    "targetPort": "metrics",
                    "protocol": "TCP",
                },
            ],
        },
    }
