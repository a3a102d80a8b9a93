"""Imports a part when its command runs, not before: each image holds only what its part needs."""

from __future__ import annotations

import importlib
import signal
from types import FrameType, ModuleType

from chiasm_cli.errors import CliError


def leave_when_told() -> None:
    """End at SIGTERM from now on, until the part that starts says what to do instead.

    A container's first process hears no signal that it has no handler for: told to stop while it
    still imports its libraries, it would stay for the pod's whole grace period.
    """
    signal.signal(signal.SIGTERM, _leave)


def _leave(_: int, __: FrameType | None) -> None:
    raise SystemExit(0)


def load(part: str, module: str, command: str, extra: str = "") -> ModuleType:
    """The module `module` of a part, for the command that needs it.

    Args:
        extra: by which what it needs is installed; empty: the part's own.

    Raises: CliError when what the part needs is not installed.
    """
    try:
        return importlib.import_module(f"chiasm_{part}.{module}")
    except ModuleNotFoundError as error:
        raise CliError(
            f"chiasm {command} needs {error.name}, which is not installed; "
            f"run: pip install 'chiasm[{extra or part}]'"
        ) from error
