"""The image that holds each pod's namespaces open: one small program of ours and nothing else."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO

from chiasm_cluster.images import archive
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node.worker import PAUSE_IMAGE


def image(binaries: Path) -> archive.Image:
    """The pause image."""

    def write(out: IO[bytes]) -> None:
        program = binaries / "pause"
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo("pause")
            info.size, info.mode = program.stat().st_size, 0o755
            with program.open("rb") as content:
                tar.addfile(info, content)

    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
    }
    return archive.Image(PAUSE_IMAGE, config, (archive.measured(write),))


def ensure(binaries: Path, store: ImageStore) -> bool:
    """Have the pause image in `store`; true, once it is there."""
    pause = image(binaries)
    if store.digests().get(pause.name) != pause.digest:
        store.import_image(pause)
    return True
