"""How replicas on this machine find each other: each has a loopback address, all have one port."""

from __future__ import annotations

from pathlib import Path

from chiasm_contract.tiers import PeerTier, PeerTransport


def on_loopback(
    folder: Path,
    own: str,
    other: str,
    transport: PeerTransport,
    *,
    port: int,
    timeout_seconds: float,
) -> PeerTier:
    """The settings of the replica at `own`; `folder` holds their secret."""
    settings = PeerTier(
        hosts=(other,),
        port=port,
        listen_host=own,
        transport=transport,
        secret_path=folder / "secret",
        timeout_seconds=timeout_seconds,
        refresh_seconds=3600,
    )
    if transport == "nixl":
        return settings.model_copy(update={"data_port": 0, "interface": "lo"})
    return settings
