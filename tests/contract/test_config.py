"""The two files that the parts read."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_contract.config import SidecarConfig, WorkerConfig, read_config
from pydantic import BaseModel, ValidationError


@pytest.mark.parametrize(
    "config",
    [
        WorkerConfig(model_id="m", model_path=Path("/models")),
        SidecarConfig(model_id="m", expected_identity={"repr.block_size": 16, "a": [1, 2]}),
    ],
)
def test_files_survive(tmp_path: Path, config: BaseModel) -> None:
    path = tmp_path / "config.json"
    path.write_text(config.model_dump_json())
    assert read_config(type(config), path) == config


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_id": "m", "model_path": "/models", "turbo": true}')
    with pytest.raises(ValidationError, match="turbo"):
        read_config(WorkerConfig, path)
