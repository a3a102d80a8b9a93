"""`chiasm sidecar run`: the process."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys
from pathlib import Path

import uvloop
from chiasm_contract import logs
from chiasm_contract.config import SidecarConfig, read_config
from pydantic import ValidationError

from chiasm_sidecar.server import listen, serve
from chiasm_sidecar.settings import Settings

_PR_SET_DUMPABLE = 4


def run(config_path: Path) -> None:
    """Serve what `config_path` says until a signal ends it.

    Raises: SystemExit with a sentence when a variable or the file is wrong or a port is taken.
    """
    leave_no_core()
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


def leave_no_core() -> None:
    """Have no core dump written: tokens and passwords would lie in it.

    The limit is not enforced where the kernel hands cores to a program, as most nodes have it; a
    process that is not dumpable has none there either.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SystemExit(
            f"chiasm sidecar: cannot listen on {host} port {port}: {reason}"
        ) from error
