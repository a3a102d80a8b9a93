"""The pods' ServiceAccount: an identity without a token."""

from __future__ import annotations

from typing import Any

from chiasm_operator.render.target import Target


def render(target: Target) -> dict[str, Any]:
    """The ServiceAccount."""
    annotations = target.spec.pod_template.service_account_annotations
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": target.metadata(annotations=annotations),
        "automountServiceAccountToken": False,
    }
