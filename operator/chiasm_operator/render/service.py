"""The Services: one for clients, whose selector says which revision is stable, and one for each
revision, by which sidecars hand over what the other revision is to answer."""

from __future__ import annotations

from typing import Any

from chiasm_contract import names

from chiasm_operator.render.target import Target


def url(target: Target) -> str:
    """Where the API answers inside the cluster."""
    return f"http://{target.name}.{target.resource.namespace}.svc:{names.API_PORT}"


def render(target: Target, stable: str) -> dict[str, Any]:
    """The Service for clients: the API, and the metrics for scrapers."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": target.metadata(),
        "spec": {
            "type": "ClusterIP",
            "selector": target.revision_selector(stable),
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


def render_revision(target: Target, revision: str) -> dict[str, Any]:
    """The Service of one revision."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": target.revision_metadata(revision),
        "spec": {
            "type": "ClusterIP",
            "selector": target.revision_selector(revision),
            "ports": [
                {"name": "http", "port": names.API_PORT, "targetPort": "http", "protocol": "TCP"},
            ],
        },
    }
