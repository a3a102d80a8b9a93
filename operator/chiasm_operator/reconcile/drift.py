"""Does a live object still hold what we applied?

Two questions, both needed: is each field that we want there (somebody may have changed it), and
did we apply the same manifest last time (a field that we no longer want must be given up, and
only an apply does that)? The second is answered by the digest that travels with the object.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from chiasm_contract import names, quantity

from chiasm_operator.resource import Manifest

_QUANTITY_PARENTS = {"requests", "limits", "sizeLimit", "averageValue"}


def _amount(text: Any) -> Any:
    """`text` by value; a spelling that we do not write ourselves, such as 1e3, counts as it is."""
    try:
        return quantity.parse(text)
    except ValueError:
        return text


def stamped(manifest: Manifest) -> dict[str, Any]:
    """`manifest` with the digest of itself as an annotation."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_APPLIED: digest}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def differs(desired: Any, live: Any, *, quantities: bool = False) -> bool:
    """Whether some field of `desired` is not so in `live`; what `live` has beside it is ignored."""
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return bool(desired) or live is not None
        return any(
            differs(value, live.get(key), quantities=quantities or key in _QUANTITY_PARENTS)
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        if not isinstance(live, list):
            return bool(desired) or live is not None
        return len(desired) != len(live) or any(
            differs(mine, theirs, quantities=quantities)
            for mine, theirs in zip(desired, live, strict=True)
        )
    if quantities and live is not None:
        return bool(_amount(desired) != _amount(live))
    return bool(desired != live and not (desired == "" and live is None))
