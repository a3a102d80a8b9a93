"""The fields of a spec that take a value from a source of its environment.

Must not know: how a source is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from chiasm_contract import names
from chiasm_contract.api.environments import Source
from chiasm_contract.api.pod_template import ImagePullSecret
from chiasm_contract.api.tenants import KeysSecret, ServerKeySecret
from chiasm_contract.api.tiers import SecretEntry
from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.configuration import Use

_Origin = SecretEntry | KeysSecret | ServerKeySecret | ImagePullSecret


@dataclass(frozen=True)
class Reference:
    """One field.

    Attributes:
        field: its path; has `source`.
        source: the source's name.
        use: by what a new value is proved; None: it is the kubelet's, and no pod has it.
        key: the entry; None: each entry has a meaning of its own.
    """

    field: str
    source: str
    use: Use | None
    key: str | None = None


def references(spec: Spec) -> tuple[Reference, ...]:
    """Every field that names a source."""
    return tuple(
        Reference(field, origin.source, use, getattr(origin, "key", None))
        for field, use, origin in _origins(spec)
        if origin is not None and origin.source is not None
    )


def uses(spec: Spec) -> Mapping[str, tuple[Use, ...]]:
    """By source, what uses it."""
    found: dict[str, dict[Use, None]] = {}
    for each in references(spec):
        if each.use is not None:
            found.setdefault(each.source, {})[each.use] = None
    return {source: tuple(by) for source, by in found.items()}


def pulling(spec: Spec) -> frozenset[str]:
    """The sources by which nodes pull images."""
    return frozenset(each.source for each in references(spec) if each.use is None)


def in_pods(spec: Spec) -> tuple[Source, ...]:
    """The chosen environment's sources, but for those that only nodes read."""
    environment = spec.config.chosen
    only_pulling = pulling(spec) - uses(spec).keys()
    return tuple(
        source
        for source in (environment.sources if environment is not None else ())
        if source.name not in only_pulling or any(key.env for key in source.keys)
    )


def current(source: str, key: str | None = None) -> Path:
    """Where the sidecar keeps what it uses of a source: its folder, or one entry."""
    folder = Path(names.CONFIG_CURRENT_DIR) / source
    return folder if key is None else folder / key


def entry_path(entry: SecretEntry, mounted: str) -> Path:
    """Where an entry is read: from its source, or from the Secret that is mounted."""
    return Path(mounted) if entry.source is None else current(entry.source, entry.key)


def _origins(spec: Spec) -> Iterator[tuple[str, Use | None, _Origin | None]]:
    tiers, tenants = spec.tiers, spec.tenants
    if tiers is not None and tiers.peers is not None:
        yield "spec.tiers.peers.secret", "peers", tiers.peers.secret
    if tiers is not None and tiers.valkey is not None:
        valkey = tiers.valkey
        for name, entry in (
            ("caSecret", valkey.ca_secret),
            ("usernameSecret", valkey.username_secret),
            ("passwordSecret", valkey.password_secret),
            ("clientCertificateSecret", valkey.client_certificate_secret),
            ("clientKeySecret", valkey.client_key_secret),
        ):
            yield f"spec.tiers.valkey.{name}", "valkey", entry
    if tenants is not None:
        yield "spec.tenants.keysSecret", "tenants", tenants.keys_secret
        yield "spec.tenants.serverKeySecret", "tenants", tenants.server_key_secret
    for index, origin in enumerate(spec.pod_template.image_pull_secrets):
        yield f"spec.podTemplate.imagePullSecrets[{index}]", None, origin
