"""The image with both programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chiasm_cluster.images import archive
from chiasm_cluster.images.load import PROJECT, ImageFactory
from chiasm_cluster.state import locked

IMAGE = "docker.io/chiasm/vault-site:2.7.2"


def make(cache_dir: Path, say: Callable[[str], None]) -> archive.Image:
    """Made when it is not in the cache.

    Raises: ClusterError when a step fails.
    """
    factory = ImageFactory(cache_dir, say)
    with locked("images"):
        return factory.made_of(factory.recipe(PROJECT / "cluster" / "vault" / "Dockerfile"), IMAGE)
