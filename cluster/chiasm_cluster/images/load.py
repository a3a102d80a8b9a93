"""Our images: made from their Dockerfiles, brought to every node that lacks them."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import requirements
from chiasm_cluster.images import archive, dockerfile
from chiasm_cluster.images.base import BaseImage
from chiasm_cluster.images.layers import LayerBuilder
from chiasm_cluster.images.requirements import LISTS
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node.worker import ctr
from chiasm_cluster.progress import Progress
from chiasm_cluster.state import Cluster, locked

PROJECT = Path(__file__).resolve().parents[3]
_DISK_BYTES = {"worker": 16 * requirements.GIB}
_SMALL_DISK_BYTES = 2 * requirements.GIB


class ImageFactory:
    """Makes images from the project's Dockerfiles into the cache folder."""

    def __init__(
        self, cache_dir: Path, say: Callable[[str], None], project: Path = PROJECT
    ) -> None:
        self._project = project
        self._folder = cache_dir / "images"
        base = BaseImage(say)
        self._builder = LayerBuilder(project, self._folder, base)
        self._version = version(project)
        self._arguments = {"BASE_IMAGE": base.name, "CHIASM_VERSION": self._version}

    def make(self, image: str) -> archive.Image:
        """One of our images; nothing is made when it is in the cache.

        Raises: ClusterError when its Dockerfile is not understood or a step fails.
        """
        needed = _DISK_BYTES.get(image, _SMALL_DISK_BYTES)
        recipe = self._recipe(image)
        if not self._builder.is_noted(recipe):
            requirements.require_disk(self._folder, needed, f"Making the {image} image")
        return self.made_of(recipe, image_name(image, self._version))

    def made_of(self, recipe: dockerfile.Recipe, name: str) -> archive.Image:
        """The image of a recipe; layers that are in the cache are not made again.

        Raises: ClusterError when a step fails.
        """
        config = {
            "architecture": archive.architecture(),
            "os": "linux",
            "config": recipe.image_config,
        }
        return archive.Image(name, config, self._builder.layers(recipe))

    def recipe(self, path: Path, **arguments: str) -> dockerfile.Recipe:
        """A Dockerfile, with the arguments that all of ours take.

        Raises: ClusterError when it is not understood.
        """
        return dockerfile.read(path, {**self._arguments, **arguments})

    def drop_large_trees(self, image: str) -> None:
        """Give back the disk space of what every node has now."""
        self._builder.drop_large_trees(self._recipe(image))
        self._builder.prune()

    def _recipe(self, image: str) -> dockerfile.Recipe:
        """A Dockerfile and a list of packages, which lie in the same folder."""
        packages = self._project / LISTS[image]
        return self.recipe(packages.with_name("Dockerfile"), REQUIREMENTS=packages.name)


def image_name(image: str, project_version: str) -> str:
    """The name by which pods ask for one of our images."""
    return f"docker.io/chiasm/{image}:{project_version}"


def version(project: Path) -> str:
    """The project's version."""
    found: str = tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"]
    return found


def load(
    cluster: Cluster, images: Iterable[str], cache_dir: Path, say: Callable[[str], None]
) -> None:
    """Bring `images` (ours, or archives ending in .tar) to every node of `cluster`.

    Raises: ClusterError when one is unknown or cannot be made.
    """
    requirements.require_root()
    names = list(images)
    _check(names)
    factory = ImageFactory(cache_dir, say)
    stores = _stores(cluster)
    with locked("images"):
        for name in names:
            if name in LISTS:
                bring(cluster, factory.make(name), say)
                factory.drop_large_trees(name)
            else:
                for node_name, store in stores.items():
                    with Path(name).open("rb") as source:
                        store.import_stream(partial(shutil.copyfileobj, source))
                    say(f"{name} is on {node_name}.")


def bring(cluster: Cluster, image: archive.Image, say: Callable[[str], None]) -> None:
    """Have an image on every node of `cluster`.

    Raises: ClusterError when a node refuses it.
    """
    for node_name, store in _stores(cluster).items():
        say(_bring(image, store, node_name))


def _stores(cluster: Cluster) -> dict[str, ImageStore]:
    return {node.name: ImageStore(ctr(cluster, node)) for node in cluster.nodes}


def digests(cluster: Cluster) -> dict[str, str]:
    """The digest of each of our images that the first node of `cluster` has, by its name here."""
    held = ImageStore(ctr(cluster, cluster.nodes[0])).digests()
    names = {image: image_name(image, version(PROJECT)) for image in LISTS}
    return {image: held[name] for image, name in names.items() if name in held}


def write_archive(name: str, path: Path, cache_dir: Path, say: Callable[[str], None]) -> None:
    """Write one of our images as an OCI archive, for a cluster that is not ours.

    Raises: ClusterError when it is unknown or cannot be made.
    """
    requirements.require_root()
    _check([name])
    with locked("images"):
        image = ImageFactory(cache_dir, say).make(name)
        unfinished = path.with_name(path.name + ".new")
        try:
            with unfinished.open("wb") as out, Progress(f"writing {path.name}"):
                archive.write_archive(out, image)
            unfinished.replace(path)
        finally:
            with suppress(FileNotFoundError):
                unfinished.unlink()
    say(f"{path} holds {image.name}, {image.digest}.")


def _check(names: list[str]) -> None:
    for name in names:
        if name not in LISTS and not (name.endswith(".tar") and Path(name).is_file()):
            raise ClusterError(
                f"{name!r} is no image; name one of {', '.join(LISTS)}, or an existing OCI or "
                "Docker archive ending in .tar."
            )


def _bring(image: archive.Image, store: ImageStore, node_name: str) -> str:
    """Import `image` unless the node has it; what to tell."""
    if store.digests().get(image.name) == image.digest:
        store.renew_references()  # the import that brought it may have been interrupted
        return f"{image.name} is on {node_name} already, {image.digest}."
    present = store.snapshots()
    layers = [
        replace(layer, write=None) if chain in present else layer
        for layer, chain in zip(image.layers, chain_ids(image), strict=True)
    ]
    with Progress(f"{image.name} to {node_name}"):
        store.import_image(replace(image, layers=tuple(layers)))
    return f"{image.name} is on {node_name}, {image.digest}."


def chain_ids(image: archive.Image) -> list[str]:
    """For each layer, the name under which a node keeps it unpacked on top of those below."""
    chain = ""
    found = []
    for layer in image.layers:
        digest = layer.descriptor.digest
        joined = f"{chain} {digest}" if chain else digest
        chain = f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}" if chain else digest
        found.append(chain)
    return found
