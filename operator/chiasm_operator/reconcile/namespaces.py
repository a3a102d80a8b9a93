"""Is what a resource serves among what it says is retired?

Such a resource answers as ever, and computes everything: no tier keeps or gives it a block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chiasm_contract.conditions import ConditionType, Finding, Reason, Truth
from chiasm_contract.tiers import begins, release_prefix

from chiasm_operator.render import Target


def judge(target: Target, identity: Mapping[str, Any] | None) -> Finding | None:
    """What is true of the tiers of the identity that is latched; None without tiers."""
    tiers = target.spec.tiers
    if tiers is None:
        return None
    kind = ConditionType.TIERS_USABLE
    if identity is None:
        message = "No pod has reported which namespace it uses."
        return Finding(kind, Truth.UNKNOWN, Reason.NOT_REPORTED, message)
    name = release_prefix(identity["computeFingerprint"], identity["reprFingerprint"])
    whole = [end for end in tiers.retired_namespaces if begins(name, end)]
    some = [end for end in tiers.retired_namespaces if end != name and begins(end, name)]
    if not whole and not some:
        message = f"Blocks of {name} are kept and given."
        return Finding(kind, Truth.TRUE, Reason.NAMESPACE_OPEN, message)
    who = "every request" if whole else f"every request of {len(some)} of its tenants"
    return Finding(
        kind,
        Truth.FALSE,
        Reason.SERVED_NAMESPACE_RETIRED,
        f"spec.tiers.retiredNamespaces names {(whole or some)[0]}, and this resource serves "
        f"{name}: no tier keeps or gives its blocks, and {who} is computed anew. Serve another "
        "model or configuration, or take the entry out and remove the tombstones as docs/tiers.md "
        "says.",
    )
