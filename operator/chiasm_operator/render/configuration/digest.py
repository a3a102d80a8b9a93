"""The Secret with the key by which all pods name a value alike and never tell it.

Made once and never read: the operator may create Secrets and nothing else with them. A pod starts
without it too, and then names values so that no other pod can compare them.
"""

from __future__ import annotations

import base64
from typing import Any

from chiasm_contract import names

from chiasm_operator.render.target import Target

KEY_BYTES = 32


def name(target: Target) -> str:
    """Name of the Secret."""
    return f"{target.name}-digest"


def render(target: Target, random: bytes) -> dict[str, Any]:
    """The Secret, with `random` as its key.

    Raises: ValueError when these are not KEY_BYTES bytes.
    """
    if len(random) != KEY_BYTES:
        raise ValueError(f"a key of {KEY_BYTES} bytes is needed, not of {len(random)}")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": target.metadata(name(target)),
        "type": "Opaque",
        "immutable": True,
        "data": {names.CONFIG_DIGEST_KEY: base64.b64encode(random).decode()},
    }
