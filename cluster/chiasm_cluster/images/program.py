"""An image that is one program, on nothing or on the layers of another image."""

from __future__ import annotations

from pathlib import Path

from chiasm_cluster.images import archive

_USER = "65532:65532"


def image(name: str, program: Path, *base: archive.Layer) -> archive.Image:
    """The image `name`, whose entry point is `program`."""
    path = f"/usr/local/bin/{program.name}"
    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": {"Entrypoint": [path], "Env": ["PATH=/usr/local/bin"], "User": _USER},
    }
    return archive.Image(name, config, (*base, archive.of_program(program, path)))
