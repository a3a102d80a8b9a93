"""The same children once more, written by a client that decides nothing: what the API server, its
controllers and these cores need in any case."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from storm.api import Api

OWNER = "chiasm.dev/name"
APPLY = "application/apply-patch+yaml"
# As many at once as the operator has passes.
NUM_WRITERS = 12
# What the API server adds to a Service and would refuse in another one.
_GIVEN = ("clusterIP", "clusterIPs")


async def write_again(
    api: Api, collections: Sequence[str], selector: str, namespaces: Mapping[str, str]
) -> float:
    """Seconds to apply every child of `namespaces` (its keys) in the namespaces of its values."""
    children = await _children(api, collections, selector, namespaces)
    for name in namespaces.values():
        await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    waiting = list(children.values())

    async def one_owner_after_the_other() -> None:
        while waiting:
            for path, manifest in waiting.pop():
                await api.call("PATCH", path, manifest, APPLY)

    began = time.monotonic()
    await asyncio.gather(*(one_owner_after_the_other() for _ in range(NUM_WRITERS)))
    return time.monotonic() - began


async def _children(
    api: Api, collections: Sequence[str], selector: str, namespaces: Mapping[str, str]
) -> Mapping[tuple[str, str], list[tuple[str, Any]]]:
    """By namespace and owner: where each child goes, and what it says."""
    found: defaultdict[tuple[str, str], list[tuple[str, Any]]] = defaultdict(list)
    for collection in collections:
        listed = await api.call("GET", f"{collection}?labelSelector={selector}")
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        root, _, plural = collection.rpartition("/")
        for item in listed["items"]:
            metadata = item["metadata"]
            namespace = namespaces.get(metadata["namespace"])
            if namespace is None:
                continue
            path = f"{root}/namespaces/{namespace}/{plural}/{metadata['name']}"
            path += "?fieldManager=bare&force=true"
            key = (namespace, metadata["labels"][OWNER])
            found[key].append((path, {**head, **_written(item)}))
    return found


def _written(item: Mapping[str, Any]) -> dict[str, Any]:
    """A child as somebody writes it who knows no owner."""
    metadata = {key: item["metadata"][key] for key in ("name", "labels")}
    rest = {key: value for key, value in item.items() if key not in {"metadata", "status"}}
    if "spec" in rest:
        spec = {key: value for key, value in rest["spec"].items() if key not in _GIVEN}
        rest["spec"] = spec
    return {**rest, "metadata": metadata}
