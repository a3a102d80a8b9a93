"""What is wrong between a spec and its environments, which no rule of the CRD can see.

Said by the webhook when a resource is stored, and before anything is rendered. Only the chosen
environment is measured against the rest of the spec: the others may name what a spec will have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chiasm_contract.api.environments import Environment, Source
from chiasm_contract.api.v1alpha1 import Spec

from chiasm_operator.render.configuration import pulling
from chiasm_operator.render.configuration.references import Reference, references

PathAndMessage = tuple[str, str]

_ENVIRONMENTS = "spec.config.environments"
# Deliveries by which a server's own authority cannot come from a ConfigMap, and what takes it.
_OWN_AUTHORITY = {
    "csi": "the provider of the Secrets Store driver has it among its own files",
    "vso": "the Vault Secrets Operator reads it from a Secret or from its own files",
}
# What must change together, as both halves of one lease do.
_PAIRS = (("usernameSecret", "passwordSecret"), ("clientCertificateSecret", "clientKeySecret"))


def faults(spec: Spec) -> Iterator[PathAndMessage]:
    """Path and sentence of each fault of the chosen environment."""
    environment, named = spec.config.chosen, references(spec)
    yield from _unknown(environment, named)
    if environment is not None:
        yield from alone(environment)
        for source in environment.sources:
            yield from _source(environment, source, [r for r in named if r.source == source.name])
        yield from _torn(environment, named)


def elsewhere(spec: Spec) -> Iterator[PathAndMessage]:
    """Those that other environments have, whatever the rest of the spec is."""
    for environment in spec.config.environments:
        if environment is not spec.config.chosen:
            yield from alone(environment)


def alone(environment: Environment) -> Iterator[PathAndMessage]:
    """What is wrong with an environment by itself."""
    path, vault = f"{_ENVIRONMENTS}[{environment.name}]", environment.vault
    if vault is not None and not any(source.in_vault for source in environment.sources):
        yield f"{path}.vault", "no source names a secret of it; add one or leave vault out."
    if vault is not None and vault.ca_config_map and vault.delivery in _OWN_AUTHORITY:
        yield (
            f"{path}.vault.caConfigMap",
            f"is of no use with delivery: {vault.delivery}, for {_OWN_AUTHORITY[vault.delivery]}; "
            "set it there, or choose another delivery.",
        )
    setters: dict[str, str] = {}
    for source in environment.sources:
        yield from _in_part(f"{path}.sources[{source.name}]", source)
        for key in source.keys:
            here = f"{path}.sources[{source.name}].keys[{key.key}].env"
            if key.env is not None and setters.setdefault(key.env, here) != here:
                yield here, f"{key.env} is set by {setters[key.env]} too; leave one of them out."


def _in_part(path: str, source: Source) -> Iterator[PathAndMessage]:
    """Entries of a lease of which some would stay while the lease ends."""
    if not source.leased:
        return
    if source.on_change == "ignore":
        yield (
            f"{path}.onChange",
            "must be reload or restart: credentials with a lease end, and a pod that ignores "
            "others has none then.",
        )
    for key in source.keys:
        if key.on_change != source.on_change:
            yield (
                f"{path}.keys[{key.key}].onChange",
                f"must be {source.on_change}, as onChange of the source is: credentials with a "
                "lease change together.",
            )


def _unknown(
    environment: Environment | None, named: Sequence[Reference]
) -> Iterator[PathAndMessage]:
    for each in named:
        if environment is None:
            yield (
                f"{each.field}.source",
                f"{each.source!r} is a source of no environment; add it to {_ENVIRONMENTS} and "
                "choose that in spec.config.environment, or set name.",
            )
        elif environment.source(each.source) is None:
            there = ", ".join(source.name for source in environment.sources) or "none"
            yield (
                f"{each.field}.source",
                f"environment {environment.name!r} has no source {each.source!r}; there are: "
                f"{there}.",
            )


def _source(
    environment: Environment, source: Source, named: Sequence[Reference]
) -> Iterator[PathAndMessage]:
    path = f"{_ENVIRONMENTS}[{environment.name}].sources[{source.name}]"
    if not named and not any(key.env for key in source.keys):
        yield (
            path,
            "nothing uses it; name it in a field of spec.tiers, spec.tenants or "
            "spec.podTemplate.imagePullSecrets, give one of its keys an env, or leave it out.",
        )
    if named and all(each.use is None for each in named):
        yield from pulling.idle(path, source)
    for each in named:
        if each.use is None:
            why = pulling.fault(environment, source)
            if why is not None:
                yield f"{each.field}.source", why
            continue
        if source.leased and each.use != "valkey":
            yield (
                f"{each.field}.source",
                f"{source.name!r} gives each pod credentials of its own, and all pods need the "
                "same here; take a configMap, secret or kv.",
            )
        by_name = source.in_vault and environment.vault and environment.vault.delivery == "csi"
        if by_name and each.key is None and not source.keys:
            yield (
                f"{each.field}.source",
                "delivery: csi mounts only entries that are named, and here each entry is a "
                f"tenant; name them in {path}.keys, or choose another delivery.",
            )


def _torn(environment: Environment, named: Sequence[Reference]) -> Iterator[PathAndMessage]:
    by_field = {each.field.rpartition(".")[2]: each for each in named}
    for pair in _PAIRS:
        one, other = (by_field.get(name) for name in pair)
        if one is None or other is None or one.source == other.source:
            continue
        both = [environment.source(each.source) for each in (one, other)]
        if any(source is not None and source.leased for source in both):
            yield (
                f"{one.field}.source",
                f"{one.source!r} is another source than {other.source!r} of {other.field}, and "
                "credentials with a lease change together; name the same in both.",
            )
