"""The Services: one for clients, whose selector says which revision is stable, one for each
revision, by which sidecars hand over what the other revision is to answer, and one by which pods
find each other's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.v1alpha1 import Spec

from chiasm_operator.render.target import Target, has_nixl, has_peers


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


def _peers_name(target: Target) -> str:
    return f"{target.name}-peers"


def peers_host(target: Target) -> str:
    """What resolves, inside the cluster, to the addresses of all ready pods."""
    return f"{_peers_name(target)}.{target.resource.namespace}.svc"


def peer_ports(specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """Those that only pods of the resource may reach, for a network policy; none without peers."""
    stream = [names.PEER_PORT] if any(map(has_peers, specs)) else []
    ports = [*stream, *([names.PEER_DATA_PORT] if any(map(has_nixl, specs)) else [])]
    return [{"port": port, "protocol": "TCP"} for port in ports]


def render_peers(target: Target, specs: Sequence[Spec]) -> dict[str, Any] | None:
    """The headless Service by whose name pods find each other's memory; none if no revision of
    `specs` has peers."""
    if not any(map(has_peers, specs)):
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": target.metadata(_peers_name(target)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": target.selector,
            "ports": [
                {
                    "name": "peers",
                    "port": names.PEER_PORT,
                    "targetPort": names.PEER_PORT,
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
