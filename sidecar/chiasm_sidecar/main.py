"""`chiasm sidecar run`: the process."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import uvloop
from chiasm_contract.config import SidecarConfig, read_config
from pydantic import ValidationError

from chiasm_sidecar import logs
from chiasm_sidecar.server import listen, serve
from chiasm_sidecar.settings import Settings


def run(config_path: Path) -> None:
    """Serve what `config_path` says until a signal ends it.

    Raises: SystemExit with a sentence when a variable or the file is wrong or a port is taken.
    """
    # What a process has in memory would lie in a core dump, tokens and passwords with it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    settings = Settings.load()
    logs.configure(settings.log_level)
    try:
        config = read_config(SidecarConfig, config_path)
    except (OSError, ValidationError) as error:
        raise SystemExit(f"chiasm sidecar: cannot use {config_path}: {error}") from error
    if config.tiers is not None and not config.tiers.socket_path.parent.is_dir():
        raise SystemExit(
            f"chiasm sidecar: there is no folder {config.tiers.socket_path.parent} for "
            "tiers.socket_path; make it, or name another."
        )
    api = _listen(config.host, config.api_port)
    metrics = _listen(config.host, config.metrics_port)
    uvloop.run(serve(config, api, metrics, settings))


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SystemExit(
            f"chiasm sidecar: cannot listen on {host} port {port}: {reason}"
        ) from error
