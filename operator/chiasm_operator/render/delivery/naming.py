"""Names of what delivers the sources of one revision."""

from __future__ import annotations

from typing import Any

from chiasm_contract.api.environments import Source

from chiasm_operator.render.target import Target


def name(target: Target, source: Source) -> str:
    """Of the objects of one source, and of the Secret that they write."""
    return f"{whole(target)}-{source.name}"


def whole(target: Target) -> str:
    """Of what all sources share."""
    return target.revision_name(target.revision)


def made(api_version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """An object without what only its resource knows."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "spec": spec}
