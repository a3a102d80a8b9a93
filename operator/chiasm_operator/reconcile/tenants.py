"""What is wrong with the Secrets of spec.tenants, said so that a person knows what to mend."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chiasm_contract.conditions import Reason

from chiasm_operator.reconcile.problems import Problem
from chiasm_operator.render import Target

_MISSING_SECRET = re.compile(r'secret "([^"]+)" not found')
_MISSING_ENTRY = re.compile(r"references non-existent secret key: (\S+)")


def missing(target: Target, text: str) -> Iterator[Problem]:
    """What a failed mount says of a Secret that is not there, or lacks the entry asked for."""
    tenants = target.spec.tenants
    if tenants is None:
        return
    server_key = tenants.server_key_secret
    fields = {tenants.keys_secret.name: "keysSecret", server_key.name: "serverKeySecret"}
    secret = _MISSING_SECRET.search(text)
    if secret and secret[1] in fields:
        yield Problem(
            Reason.SECRET_NOT_FOUND,
            f"Secret {secret[1]!r} (spec.tenants.{fields[secret[1]]}.name) does not exist in "
            f"namespace {target.resource.namespace!r}; create it or name another.",
        )
    entry = _MISSING_ENTRY.search(text)
    if entry and entry[1] == server_key.key:
        yield Problem(
            Reason.SECRET_NOT_FOUND,
            f"Secret {server_key.name!r} (spec.tenants.serverKeySecret.name) has no entry "
            f"{server_key.key!r} (spec.tenants.serverKeySecret.key); add it or name another.",
        )


def secrets(target: Target) -> str:
    """Where the keys come from that a sidecar cannot use."""
    tenants = target.spec.tenants
    if tenants is None:  # a pod of the spec before
        return "spec.tenants is not set any more"
    return (
        f"spec.tenants.keysSecret: {tenants.keys_secret.name!r}, "
        f"serverKeySecret: {tenants.server_key_secret.name!r}"
    )
