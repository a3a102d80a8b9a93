"""One Secret that a pod mounts, and the fields that asked for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SecretUse:
    """What the pod's volume needs of a Secret.

    Attributes:
        volume: the volume's name, which a kubelet says when it cannot mount it.
        field: of the resource; has `name`, and `key` where one entry is asked for.
        name: of the Secret.
        key: the entry; None: all of them.
    """

    volume: str
    field: str
    name: str
    key: str | None = None
