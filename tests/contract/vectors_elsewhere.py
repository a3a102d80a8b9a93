"""Recompute the golden fingerprints with whatever Python runs this: `python FILE VECTORS`.

A script of its own, so that another interpreter can run it with chiasm_contract on its path.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def wrong(document: dict[str, Any]) -> list[str]:
    """What this Python computes otherwise."""
    from chiasm_contract import fingerprint
    from chiasm_contract.fingerprint import Compute, Repr, Scope

    faults = [] if document["schema"] == fingerprint.SCHEMA else ["schema"]
    kinds = {
        "compute": (Compute, fingerprint.compute_fp),
        "repr": (Repr, fingerprint.repr_fp),
        "scope": (Scope, fingerprint.scope_fp),
    }
    for vector in document["vectors"]:
        for domain, (kind, digest) in kinds.items():
            part = kind.model_validate(vector[domain]["fields"])
            if fingerprint.encoded(part).hex() != vector[domain]["cbor"]:
                faults.append(f"{vector['name']}: {domain}: cbor")
            if digest(part) != vector[domain]["sha256"]:
                faults.append(f"{vector['name']}: {domain}: sha256")
    return faults


if __name__ == "__main__":
    found = wrong(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    print(f"Python {sys.version_info.major}.{sys.version_info.minor}: {found or 'as recorded'}")
    sys.exit(bool(found))
