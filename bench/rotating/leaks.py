"""Looks for secrets wherever something was written: logs, objects, events, answers of open ports.

A Secret object holds what it is for, and is not looked at; nor are OpenBao and Valkey themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
from chiasm_contract import names
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster

_KINDS = (
    "multimodalinferences,pods,deployments,replicasets,configmaps,events,services,"
    "controllerrevisions"
)
_LEAST_CHARACTERS = 12
_READ_ALL = (
    "import json,os,sys\n"
    "found={}\n"
    "for folder,_,files in os.walk(sys.argv[1]):\n"
    "  for name in files:\n"
    "    with open(os.path.join(folder,name),errors='replace') as file:\n"
    "      found[os.path.join(folder,name)]=file.read()\n"
    "print(json.dumps(found))"
)


@dataclass
class Markers:
    """Every secret that was ever in use, by what it is."""

    values: dict[str, str] = field(default_factory=dict)  # secret -> where it is from

    def add(self, what: str, value: str) -> None:
        """One secret; what is too short to be one would be found everywhere."""
        for line in value.split():
            if len(line) >= _LEAST_CHARACTERS:
                self.values[line] = what

    def collect(self, cluster: LocalCluster, pods: list[str]) -> None:
        """What sidecars have in use now, read inside their containers: values, tokens, leases."""
        for pod in pods:
            said = cluster.kubectl(
                "exec", pod, "-n", tour.NAMESPACE, "-c", names.SIDECAR_CONTAINER, "--",
                "python3", "-c", _READ_ALL, names.CONFIG_CURRENT_DIR, quiet=True,
            )  # fmt: skip
            for path, text in json.loads(said or "{}").items():
                name = path.rpartition("/")[2]
                try:
                    parsed = json.loads(text)
                except ValueError:
                    parsed = text
                if name == "..record.json":
                    parsed = parsed["held"]  # its id is no secret
                for value in _strings(parsed):
                    if name not in ("level", "prefix", "..followed.json"):
                        self.add(f"{pod}: {name}", value)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def written(cluster: LocalCluster, pods: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(where, text) of everything that anybody may read; `pods` are names and addresses."""
    for namespace in (tour.NAMESPACE, tour.SYSTEM_NAMESPACE):
        yield (
            f"objects in {namespace}",
            cluster.kubectl("get", _KINDS, "-n", namespace, "-o", "json"),
        )
        described = cluster.kubectl("describe", "pods,mmi", "-n", namespace, quiet=True)
        yield f"describe in {namespace}", described
        for pod in cluster.kubectl("get", "pods", "-n", namespace, "-o", "name").split():
            for more in ((), ("--previous",)):
                said = cluster.kubectl(
                    "logs", pod, "-n", namespace, "--all-containers", "--tail=-1", *more, quiet=True
                )
                yield f"logs of {pod}", said
    for pod, address in pods.items():
        for path in ("metrics", "state", "namespaces"):
            host = names.host_port(address, names.METRICS_PORT)
            yield f"/{path} of {pod}", httpx.get(f"http://{host}/{path}", timeout=30).text


def found(markers: Markers, texts: Iterator[tuple[str, str]]) -> list[str]:
    """A line for each secret and place, which says where and never what."""
    return sorted(
        {
            f"{what} is in {where}"
            for where, text in texts
            for secret, what in markers.values.items()
            if secret in text
        }
    )
