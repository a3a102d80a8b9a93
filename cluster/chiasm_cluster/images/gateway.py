"""The images of Envoy Gateway and of the Envoy that it runs, for `make e2e-gateway`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chiasm_cluster.build import gateway
from chiasm_cluster.images import archive, dockerfile, program
from chiasm_cluster.images.base import BaseImage
from chiasm_cluster.images.layers import LayerBuilder

GATEWAY_IMAGE = f"docker.io/chiasm/envoy-gateway:{gateway.PROGRAM.version}"
ENVOY_IMAGE = "docker.io/chiasm/envoy:1.40.0"


def images(cache_dir: Path, say: Callable[[str], None]) -> tuple[archive.Image, ...]:
    """Both, built when they are not there.

    Raises: ClusterError when a step fails.
    """
    built = gateway.PROGRAM.ensure(cache_dir, say)
    proxy = _envoy(cache_dir, say)
    # On the base of the other images, whichever way it is linked.
    return proxy, program.image(GATEWAY_IMAGE, built, proxy.layers[0])


def _envoy(cache_dir: Path, say: Callable[[str], None]) -> archive.Image:
    """Envoy, made from its Dockerfile."""
    sources = gateway.PROGRAM.sources
    base = BaseImage(say)
    recipe = dockerfile.read(sources / "Dockerfile", {"BASE_IMAGE": base.name})
    builder = LayerBuilder(sources, cache_dir / "images", base)
    config = {
        "architecture": archive.architecture(),
        "os": "linux",
        "config": recipe.image_config,
    }
    return archive.Image(ENVOY_IMAGE, config, builder.layers(recipe))
