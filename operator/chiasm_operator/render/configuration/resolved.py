"""What `sidecar.json` says of each source: where it lies, how it is asked for, what uses it."""

from __future__ import annotations

from pathlib import Path

from chiasm_contract import names
from chiasm_contract.api.environments import Environment, Source, Vault
from chiasm_contract.configuration import (
    ConfigSource,
    Configuration,
    Delivery,
    SourceKind,
    Use,
    VaultLogin,
)

from chiasm_operator.render.configuration.references import in_pods, uses
from chiasm_operator.render.target import Target

_RENDERED: dict[Delivery, str] = {
    "agent": names.AGENT_RENDERED_DIR,
    "injector": names.INJECTOR_RENDERED_DIR,
}


def from_vault(environment: Environment) -> tuple[Source, ...]:
    """The sources that a Vault or OpenBao has."""
    return tuple(source for source in environment.sources if source.in_vault)


def by_delivery(target: Target, *deliveries: Delivery) -> tuple[Vault, tuple[Source, ...]] | None:
    """The server and what comes from it, if it comes by one of `deliveries`."""
    environment = target.environment
    if environment is None or environment.vault is None:
        return None
    sources = from_vault(environment)
    if not sources or environment.vault.delivery not in deliveries:
        return None
    return environment.vault, sources


def configuration(target: Target) -> Configuration | None:
    """The section of `sidecar.json`; None without an environment."""
    environment = target.environment
    if environment is None:
        return None
    used, sources = uses(target.spec), in_pods(target.spec)
    digest_key = Path(names.CONFIG_DIGEST_DIR) / names.CONFIG_DIGEST_KEY
    return Configuration(
        environment=environment.name,
        sources=tuple(
            _resolved(environment, source, used.get(source.name, ())) for source in sources
        ),
        vault=_login(target),
        digest_key_path=digest_key if sources else None,
        approvals_path=Path(names.APPROVALS_FILE) if sources else None,
    )


def mounted_path(source: Source) -> Path:
    """Where a source lies that is mounted."""
    return Path(names.CONFIG_SOURCES_DIR) / source.name


def rendered_path(source: Source, delivery: Delivery) -> Path:
    """The file that an agent makes of a source."""
    return Path(_RENDERED[delivery]) / f"{source.name}.json"


def _resolved(environment: Environment, source: Source, used: tuple[Use, ...]) -> ConfigSource:
    vault = environment.vault
    delivery = vault.delivery if vault is not None and source.in_vault else None
    kind, path = _place(source, delivery)
    asked = path is None
    mount, entry = address(source) if asked else (None, None)
    pki = source.pki if asked else None
    return ConfigSource(
        name=source.name,
        kind=kind,
        path=path,
        mount=mount,
        entry=entry,
        common_name=pki.common_name if pki else None,
        ttl_seconds=pki.ttl_seconds if pki else None,
        on_change=source.on_change,
        keys={key.key: key.on_change for key in source.keys if key.on_change != source.on_change},
        leased=environment.leases(source),
        uses=used,
    )


def _place(source: Source, delivery: Delivery | None) -> tuple[SourceKind, Path | None]:
    if delivery == "direct":
        return engine(source), None
    if delivery in _RENDERED:
        return "rendered", rendered_path(source, delivery)
    return "mounted", mounted_path(source)


def engine(source: Source) -> SourceKind:
    """The kind of engine that has a source.

    Raises: ValueError for one that is in no Vault.
    """
    if source.kv:
        return "kv"
    if source.database:
        return "database"
    if source.rabbitmq:
        return "rabbitmq"
    if source.pki:
        return "pki"
    raise ValueError(f"source {source.name!r} is in no Vault; this is a bug")


def address(source: Source) -> tuple[str, str]:
    """Where its engine is mounted, and the secret or role inside it."""
    if source.kv:
        return source.kv.mount, source.kv.path
    made = source.database or source.rabbitmq or source.pki
    if made is None:
        raise ValueError(f"source {source.name!r} is in no Vault; this is a bug")
    return made.mount, made.role


def api_path(source: Source) -> str:
    """What is asked for at the server, below /v1/."""
    mount, entry = address(source)
    verb = {"kv": "data", "pki": "issue"}.get(engine(source), "creds")
    return f"{mount}/{verb}/{entry}"


def _login(target: Target) -> VaultLogin | None:
    direct = by_delivery(target, "direct")
    if direct is None:
        return None
    vault, _ = direct
    return VaultLogin(
        address=vault.address,
        namespace=vault.namespace,
        ca_path=Path(names.VAULT_CA_FILE) if vault.ca_config_map else None,
        auth_mount=vault.auth.mount,
        role=vault.auth.role,
    )
