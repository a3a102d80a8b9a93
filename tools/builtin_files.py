"""contract/chiasm_contract/builtin_models.json from the folders of the models that we ship.

What depends on the machine or on a library's version is left out: those may differ between two
right installations, while weights and positions may not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import torch
from chiasm_contract.builtin_models import FILE_NAME
from chiasm_contract.config import Dtype, EngineLimits
from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.identity import build_identity
from chiasm_worker.models.registry import load_model
from transformers.utils import logging

FOLDERS = {"demo": Path("demo") / "model"}
LASTING_FIELDS = ("compute.weights.", "compute.position.")


def outputs(root: Path) -> dict[Path, str]:
    logging.disable_progress_bar()
    models = {
        name: {dtype: _fields(root / folder, dtype) for dtype in get_args(Dtype)}
        for name, folder in FOLDERS.items()
    }
    path = root / "contract" / "chiasm_contract" / FILE_NAME
    return {path: json.dumps(models, indent=2) + "\n"}


def _fields(folder: Path, dtype: str) -> dict[str, object]:
    model = load_model(folder, getattr(torch, dtype), torch.device("cpu"))
    identity = build_identity(model, cache_spec(model, EngineLimits()), "irrelevant here")
    return {
        name: value for name, value in identity.fields().items() if name.startswith(LASTING_FIELDS)
    }
