"""Imports a part when its command runs, not before: each image holds only what its part needs."""

from __future__ import annotations

import importlib
from types import ModuleType

from chiasm_cli.errors import CliError


def load(part: str, module: str, command: str) -> ModuleType:
    """The module `module` of a part, for the command that needs it.

    Raises: CliError when what the part needs is not installed.
    """
    try:
        return importlib.import_module(f"chiasm_{part}.{module}")
    except ModuleNotFoundError as error:
        raise CliError(
            f"chiasm {command} needs {error.name}, which is not installed; "
            f"run: pip install 'chiasm[{part}]'"
        ) from error
