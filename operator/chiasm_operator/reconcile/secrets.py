"""What is wrong with the Secrets that a resource names, said so that a person can mend it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chiasm_contract import names
from chiasm_contract.conditions import Reason

from chiasm_operator.reconcile.observed import volume_of
from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target, secret_uses
from chiasm_operator.render.pod.tenants import KEYS_VOLUME, SERVER_KEY_VOLUME
from chiasm_operator.resource import Manifest

_MISSING_SECRET = re.compile(r'secret "([^"]+)" not found')
# A kubelet does not say of which Secret; several faults of one volume come in one text.
_MISSING_ENTRY = re.compile(r"references non-existent secret key: ([-._a-zA-Z0-9]+)")
_VOLUME = re.compile(r'for volume "([^"]+)"')


def missing(target: Target, text: str) -> Iterator[Problem]:
    """What a failed mount says of Secrets that are not there, or lack the entry asked for."""
    volume = _VOLUME.search(text)
    uses = [use for use in secret_uses(target) if volume and use.volume == volume[1]]
    for name in _MISSING_SECRET.findall(text):
        fields = " and ".join(f"{use.field}.name" for use in uses if use.name == name)
        if fields:
            yield Problem(
                Reason.SECRET_NOT_FOUND,
                f"Secret {name!r} ({fields}) does not exist in namespace "
                f"{target.resource.namespace!r}; create it or name another.",
            )
    for key in _MISSING_ENTRY.findall(text):
        asked = [use for use in uses if use.key == key]
        if asked:
            secrets = " or ".join(f"{use.name!r} ({use.field}.name)" for use in asked)
            fields = " or ".join(f"{use.field}.key" for use in asked)
            yield Problem(
                Reason.SECRET_NOT_FOUND,
                f"Secret {secrets} has no entry {key!r} ({fields}); add it or name another.",
            )


def tenants(pod: Manifest) -> str:
    """Where the keys come from that a sidecar cannot use."""
    environment = pod["metadata"].get("labels", {}).get(names.LABEL_ENVIRONMENT)
    mounted = (
        volume_of(pod, name).get("secret", {}).get("secretName")
        for name in (KEYS_VOLUME, SERVER_KEY_VOLUME)
    )
    keys, server_key = (
        repr(name) if name else f"a source of environment {environment!r}" for name in mounted
    )
    return f"spec.tenants.keysSecret: {keys}, serverKeySecret: {server_key}"
