"""The image that holds each pod's namespaces open: one small program of ours and nothing else."""

from __future__ import annotations

from pathlib import Path

from chiasm_cluster.images import archive
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node.worker import PAUSE_IMAGE


def image(binaries: Path) -> archive.Image:
    """The pause image."""
    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
    }
    return archive.Image(PAUSE_IMAGE, config, (archive.of_program(binaries / "pause", "/pause"),))


def ensure(binaries: Path, store: ImageStore) -> bool:
    """Have the pause image in `store`; true, once it is there."""
    pause = image(binaries)
    if store.digests().get(pause.name) != pause.digest:
        store.import_image(pause)
    return True
