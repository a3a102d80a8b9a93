"""The stand-in worker's image: the sidecar's, whose packages it needs, with another command."""

from __future__ import annotations

from pathlib import Path

from chiasm_cluster.images import archive
from chiasm_cluster.images.load import PROJECT, ImageFactory, version
from chiasm_cluster.state import locked

REPOSITORY = "chiasm/faulty-worker"
_ADDED = """\
COPY bench/stand_ins /opt/chiasm/code/stand_ins
RUN printf '%s\\n' '#!/usr/bin/env python3' 'from stand_ins.faulty_worker import main' 'main()' \\
      > /usr/local/bin/chiasm && chmod 755 /usr/local/bin/chiasm
USER """


def write(folder: Path, cache_dir: Path) -> tuple[Path, str]:
    """The image as an OCI archive below `folder`, and its digest.

    Its first layers are the sidecar's, which are in the cache once that has been loaded.
    """
    recipe_path = folder / "faulty-worker" / "Dockerfile"
    recipe_path.parent.mkdir()
    sidecar = (PROJECT / "sidecar" / "Dockerfile").read_text()
    recipe_path.write_text(sidecar.replace("USER ", _ADDED, 1))
    factory = ImageFactory(cache_dir, print)
    recipe = factory.recipe(recipe_path)
    with locked("images"):
        image = factory.made_of(recipe, f"docker.io/{REPOSITORY}:{version(PROJECT)}")
        path = folder / "faulty-worker.tar"
        with path.open("wb") as out:
            archive.write_archive(out, image)
    return path, image.digest
