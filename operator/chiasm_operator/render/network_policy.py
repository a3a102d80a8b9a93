"""The NetworkPolicy: in through the two ports, out to nowhere but sidecars of the same resource,
which answer for another revision, a Valkey that holds blocks, a server that pods themselves ask for
secrets, and a collector of traces; and to DNS for their names.

With peers, pods of the resource reach each other's port for them, and nobody else does. NIXL has a
second one, which asks nobody who he is, and behind which lies all memory of the sidecar.

One policy covers the pods of all revisions that stand, and so opens what any of them needs: a
canary without tiers must not cut stable off from its own.

Pods need nothing else from the network: weights come from a mount, pictures inside the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chiasm_contract import names
from chiasm_contract.api import addresses
from chiasm_contract.api.v1alpha1 import Spec

from chiasm_operator.render import service
from chiasm_operator.render.target import Target

_ASKED_BY_PODS = {"direct", "agent", "injector"}


def render(target: Target, specs: Sequence[Spec]) -> dict[str, Any]:
    """The NetworkPolicy; `specs` are those of all revisions that stand."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": target.metadata(),
        "spec": {
            "podSelector": {"matchLabels": target.selector},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": _ports()}, *_between_peers(target, specs, "from")],
            "egress": _egress(target, specs),
        },
    }


def _ports() -> list[dict[str, Any]]:
    """The API, and the port where sidecars also tell each other their conversations."""
    return [{"port": port, "protocol": "TCP"} for port in (names.API_PORT, names.METRICS_PORT)]


def _egress(target: Target, specs: Sequence[Spec]) -> list[dict[str, Any]]:
    """To pods of the same resource, to the port of each Valkey, of each server of secrets and of
    each collector wherever their names lead, and to DNS."""
    dns = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    tiers = [spec.tiers for spec in specs if spec.tiers is not None]
    valkeys = {each.valkey.port for each in tiers if each.valkey is not None}
    asked = (*map(_secret_ports, specs), *map(_collector_ports, specs))
    ports = sorted(valkeys.union(*asked))
    return [
        {"ports": [*({"port": port, "protocol": "TCP"} for port in ports), *dns]},
        {"to": [{"podSelector": {"matchLabels": target.selector}}], "ports": _ports()},
        *_between_peers(target, specs, "to"),
    ]


def _secret_ports(spec: Spec) -> set[int]:
    """Of the server that a process in the pod asks; other deliveries ask it from elsewhere."""
    environment = spec.config.chosen
    vault = environment.vault if environment is not None else None
    if environment is None or vault is None or vault.delivery not in _ASKED_BY_PODS:
        return set()
    if not any(source.in_vault for source in environment.sources):
        return set()
    return {addresses.port(vault.address)}


def _collector_ports(spec: Spec) -> set[int]:
    tracing = spec.observability.tracing
    return set() if tracing is None else {addresses.port(tracing.endpoint)}


def _between_peers(target: Target, specs: Sequence[Spec], direction: str) -> list[dict[str, Any]]:
    ports = service.peer_ports(specs)
    if not ports:
        return []
    pods = [{"podSelector": {"matchLabels": target.selector}}]
    return [{direction: pods, "ports": ports}]
