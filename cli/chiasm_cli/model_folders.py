"""Which folder a MODEL argument means."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from chiasm_contract import names
from chiasm_contract.builtin_models import builtin_models

from chiasm_cli.errors import CliError


def find_model(model: str) -> Path:
    """The folder of a built-in model or of the user's own.

    Raises: CliError saying what is missing.
    """
    folder = _builtin(model) if model in builtin_models() else Path(model).expanduser().resolve()
    known = ", ".join(builtin_models())
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise CliError(f"{model} {what}; give the folder of a model, or a built-in one: {known}.")
    if not (folder / "config.json").is_file():
        raise CliError(f"{model} holds no config.json; give a folder in Hugging Face's layout.")
    return folder


def _builtin(model: str) -> Path:
    """In the worker's image, else in the checkout that this package runs from."""
    installed = Path(names.BUILTIN_MODELS_DIR) / model
    spec = importlib.util.find_spec("chiasm_demo")
    if installed.is_dir() or spec is None or spec.origin is None:
        return installed
    return Path(spec.origin).resolve().parents[1] / "model"
