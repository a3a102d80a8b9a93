"""The objects of other projects that deliver the sources of one revision.

Named by the revision, so that two of them with other environments never write one Secret. They are
kept in the revision's record as they were made, and are gone when it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chiasm_operator.render.delivery import csi, external_secrets, vso
from chiasm_operator.render.delivery.naming import name
from chiasm_operator.render.target import Target

__all__ = ["KINDS", "made", "name", "render"]

# As `kind_of` says them.
KINDS = (*external_secrets.KINDS, *vso.KINDS, *csi.KINDS)


def made(target: Target) -> tuple[dict[str, Any], ...]:
    """What a new revision needs: apiVersion, kind, name and spec of each, in order of applying."""
    return (*external_secrets.made(target), *vso.made(target), *csi.made(target))


def render(
    target: Target, revision: str, kept: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], ...]:
    """The manifests of what was made for a revision."""
    metadata = target.revision_metadata(revision)
    return tuple(
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "metadata": {**metadata, "name": each["name"]},
            "spec": each["spec"],
        }
        for each in kept
    )
