"""The images of Envoy Gateway and of the Envoy that it runs, for `make e2e-gateway`."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from chiasm_cluster.build import gateway
from chiasm_cluster.images import archive, dockerfile
from chiasm_cluster.images.base import BaseImage
from chiasm_cluster.images.layers import LayerBuilder

GATEWAY_IMAGE = f"docker.io/chiasm/envoy-gateway:{gateway.version()}"
ENVOY_IMAGE = "docker.io/chiasm/envoy:1.40.0"


def controller(program: Path, base: archive.Layer) -> archive.Image:
    """Envoy Gateway: one program on the `base` of the other images, whichever way it is linked."""

    def write(out: IO[bytes]) -> None:
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo(f"usr/local/bin/{gateway.PROGRAM}")
            info.size, info.mode = program.stat().st_size, 0o755
            with program.open("rb") as content:
                tar.addfile(info, content)

    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": [f"/usr/local/bin/{gateway.PROGRAM}"],
            "Env": ["PATH=/usr/local/bin"],
            "User": "65532:65532",
        },
    }
    return archive.Image(GATEWAY_IMAGE, config, (base, archive.measured(write)))


def envoy(cache_dir: Path, say: Callable[[str], None]) -> archive.Image:
    """Envoy, made from its Dockerfile.

    Raises: ClusterError when a step fails.
    """
    base = BaseImage(say)
    recipe = dockerfile.read(gateway.SOURCES / "Dockerfile", {"BASE_IMAGE": base.name})
    builder = LayerBuilder(gateway.SOURCES, cache_dir / "images", base)
    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": recipe.image_config,
    }
    return archive.Image(ENVOY_IMAGE, config, builder.layers(recipe))
