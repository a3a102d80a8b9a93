"""Factories for the worker's tests: random tiny models, pictures, plain-data requests."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from chiasm_worker.equality import Prepared, Reference
from chiasm_worker.models.registry import load_model
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from PIL import Image

from tests.worker.server.folders import Folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads; on a shared machine threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a tiny model -> its folder, written once."""
    folders: dict[str, Path] = {}
    by_name = {tiny.name: tiny for tiny in TINY_MODELS}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = write_tiny_model(by_name[name], tmp_path_factory.mktemp(name))
        return folders[name]

    return folder


@pytest.fixture(scope="session")
def prepared(tiny_folder: Callable[[str], Path]) -> Callable[[str], Prepared]:
    """Name of a tiny model -> the model loaded into our engine's parts, once."""
    loaded: dict[str, Prepared] = {}

    def load(name: str) -> Prepared:
        if name not in loaded:
            model = load_model(tiny_folder(name), torch.float32, torch.device("cpu"))
            loaded[name] = Prepared(model)
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def reference(tiny_folder: Callable[[str], Path]) -> Callable[[str], Reference]:
    """Name of a tiny model -> transformers' own model, loaded once."""
    loaded: dict[str, Reference] = {}

    def load(name: str) -> Reference:
        if name not in loaded:
            loaded[name] = Reference(tiny_folder(name))
        return loaded[name]

    return load


@pytest.fixture
def picture() -> Callable[..., bytes]:
    """(seed, width, height) -> a PNG of coloured noise."""

    def make(seed: int, width: int = 64, height: int = 48) -> bytes:
        rng = np.random.default_rng(seed)
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        return buffer.getvalue()

    return make


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name -> a model folder: of one shape a and b, with other weights; c of another shape."""
    by_name = {tiny.name: tiny for tiny in TINY_MODELS}
    folders: dict[str, Path] = {}
    kinds = {"a": ("qwen3-grouped", 0), "b": ("qwen3-grouped", 1), "c": ("qwen3-tied-bias", 0)}

    def folder(which: str) -> Path:
        if which not in folders:
            name, seed = kinds[which]
            folders[which] = write_tiny_model(by_name[name], tmp_path_factory.mktemp(which), seed)
        return folders[which]

    return folder


@pytest.fixture
def folder(tmp_path: Path, weights: Callable[[str], Path]) -> Folder:
    """A model folder whose weights can be exchanged; it holds a's."""
    made = Folder(tmp_path / "model", weights)
    made.hold("a")
    return made
