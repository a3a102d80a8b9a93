"""What a model folder's files hold: JSON, and the safetensors files that its weights lie in.

What is damaged is said in a sentence here, before transformers stumbles over it.

Must not know: configurations, models.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

Tensors = dict[str, torch.Tensor]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises: ValueError when it holds none, OSError when it cannot be read.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}. Download the model again.") from error
    if not isinstance(told, dict):
        raise ValueError(
            f"{path} holds {told!r:.80}; it must hold a JSON object. Download the model again."
        )
    return told


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, those that transformers reads, each with a whole header.

    Raises: ValueError for a damaged file or index, OSError for a missing one.
    """
    index = folder / _INDEX
    is_single = (folder / _SINGLE).is_file() or not index.is_file()
    names = [_SINGLE] if is_single else _names(index)
    for name in names:
        _check_header(folder / name)
    return [folder / name for name in names]


def read_tensors(folder: Path) -> Tensors:
    """All tensors of a folder's safetensors files.

    Raises: see `weight_files`.
    """
    tensors: Tensors = {}
    for path in weight_files(folder):
        tensors |= load_file(path)
    return tensors


def _names(index: Path) -> list[str]:
    """The files that an index names, in the folder that it lies in."""
    told = read_json(index)
    for key in ("metadata", "weight_map"):
        if not isinstance(told.get(key), dict):
            raise ValueError(
                f"{index} has the {key} {told.get(key)!r:.80}; it must be a JSON object. Download "
                "the model again."
            )
    if not told["weight_map"]:
        raise ValueError(f"{index} names no file in weight_map. Download the model again.")
    for tensor, name in told["weight_map"].items():
        # By the name alone: files in the folder may well be links to elsewhere.
        if not isinstance(name, str) or not _is_inside(PurePosixPath(name)):
            raise ValueError(
                f"{index} has the tensor {tensor!r} in {name!r}; it must be the name of a file in "
                "the same folder. Download the model again."
            )
    return sorted(set(told["weight_map"].values()))


def _is_inside(path: PurePosixPath) -> bool:
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _check_header(path: Path) -> None:
    """Raise ValueError for a file that is cut short or none of safetensors."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, so the model has no weights or not all of them; point model_path "
            "at a complete folder with safetensors files."
        )
    try:
        # It compares the header with the file's length.
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or no safetensors file: {error}. Download the model again."
        ) from error
