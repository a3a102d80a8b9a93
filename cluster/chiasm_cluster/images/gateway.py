"""The images of Envoy Gateway and of the Envoy that it runs, for `make e2e-gateway`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chiasm_cluster.build import gateway
from chiasm_cluster.images import archive, dockerfile
from chiasm_cluster.images.base import BaseImage
from chiasm_cluster.images.layers import LayerBuilder

GATEWAY_IMAGE = f"docker.io/chiasm/envoy-gateway:{gateway.version()}"
ENVOY_IMAGE = "docker.io/chiasm/envoy:1.40.0"


def controller(program: Path, base: archive.Layer) -> archive.Image:
    """Envoy Gateway: one program on the `base` of the other images, whichever way it is linked."""
    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": [f"/usr/local/bin/{gateway.PROGRAM}"],
            "Env": ["PATH=/usr/local/bin"],
            "User": "65532:65532",
        },
    }
    layer = archive.of_program(program, f"/usr/local/bin/{gateway.PROGRAM}")
    return archive.Image(GATEWAY_IMAGE, config, (base, layer))


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
