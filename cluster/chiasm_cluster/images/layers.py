"""Makes the layers of a recipe, each once per digest of everything it depends on.

A layer lies in the cache as a folder tree and a note of its digest and size. Large trees are
dropped once every node has the layer; the note stays, so that an unchanged image is known
without its files, and the tree is made again should anybody need it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from chiasm_cluster import cache
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.images import archive
from chiasm_cluster.images.base import BaseImage
from chiasm_cluster.images.dockerfile import Copy, Recipe, Run
from chiasm_cluster.progress import Progress, run_shown

_LARGE_BYTES = 512 * 1024**2
_CA_FILE = "/run/host-certificates.crt"
_HOST_CA_FILE = Path("/etc/ssl/certs/ca-certificates.crt")
_NOT_COPIED = {"__pycache__", ".mypy_cache", ".ruff_cache"}


@dataclass(frozen=True)
class _Planned:
    """A layer that can be made: its key and how to fill an empty folder with it."""

    key: str
    fill: Callable[[Path], None]


class LayerBuilder:
    """Makes layers in `cache_dir` from a build context, the folder `context`."""

    def __init__(self, context: Path, cache_dir: Path, base: BaseImage) -> None:
        self._context = context
        self._folder = cache_dir / "layers"
        self._user_cache = cache_dir.parents[1]
        self._base = base

    def layers(self, recipe: Recipe) -> tuple[archive.Layer, ...]:
        """The recipe's layers, the base's first; those not in the cache are made."""
        return tuple(self._layer(planned) for planned in self._plan(recipe))

    def is_noted(self, recipe: Recipe) -> bool:
        """Whether every layer has been made before."""
        return all(self._note(planned.key).exists() for planned in self._plan(recipe))

    def drop_large_trees(self, recipe: Recipe) -> None:
        """Delete the files of large layers, keeping the notes about them."""
        for planned in self._plan(recipe):
            note = self._note(planned.key)
            if note.exists() and json.loads(note.read_text())["size"] > _LARGE_BYTES:
                shutil.rmtree(self._tree(planned.key), ignore_errors=True)

    def prune(self) -> None:
        """Delete the layers that nobody has used for a while."""
        cache.prune(self._folder)

    def _plan(self, recipe: Recipe) -> list[_Planned]:
        planned = [_Planned(self._base.key, self._base.fill)]
        for number, step in enumerate(recipe.steps, start=1):
            below = list(planned)
            title = f"{recipe.name} image, step {number} of {len(recipe.steps)}"
            words = [below[-1].key, repr(step)]
            if isinstance(step, Copy):
                words.append(_content_digest(self._source(step)))
                fill = _partial_copy(self._source(step), step.target)
            else:
                fill = self._runner(step, title, below)
            key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]
            planned.append(_Planned(key, fill))
        return planned

    def _source(self, step: Copy) -> Path:
        source = (self._context / step.source).resolve()
        if not source.is_relative_to(self._context.resolve()) or not source.exists():
            raise ClusterError(
                f"COPY {step.source}: there is no such file or folder in {self._context}."
            )
        return source

    def _tree(self, key: str) -> Path:
        return self._folder / key / "tree"

    def _note(self, key: str) -> Path:
        return self._folder / key / "layer.json"

    def _layer(self, planned: _Planned) -> archive.Layer:
        def write(out: IO[bytes]) -> None:
            archive.write_tree(out, self._made(planned))

        note = self._note(planned.key)
        if not note.exists():
            measured = archive.measured(write).descriptor
            unfinished = note.with_suffix(".new")
            unfinished.write_text(
                json.dumps({"digest": measured.digest, "size": measured.size_bytes})
            )
            unfinished.replace(note)
        cache.use(note.parent)
        noted = json.loads(note.read_text())
        descriptor = archive.Descriptor(archive.LAYER_TYPE, noted["digest"], noted["size"])
        return archive.Layer(descriptor, write)

    def _made(self, planned: _Planned) -> Path:
        """The layer's tree, made now if it is not there."""
        tree = self._tree(planned.key)
        if not tree.is_dir():
            unfinished = tree.with_name("unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            planned.fill(unfinished)
            unfinished.rename(tree)
        return tree

    def _runner(self, step: Run, title: str, below: list[_Planned]) -> Callable[[Path], None]:
        def fill(upper: Path) -> None:
            lower = [self._made(planned) for planned in reversed(below)]
            self._run(step, title, lower, upper)

        return fill

    def _run(self, step: Run, title: str, lower: list[Path], upper: Path) -> None:
        """Run `step` over the trees `lower`; what it writes lands in `upper`."""
        work, root = upper.with_name("work"), upper.with_name("root")
        binds = [[str(Path("/etc/resolv.conf").resolve()), "/etc/resolv.conf"]]
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                       "HOME": "/root", **step.environment}  # fmt: skip
        if _HOST_CA_FILE.exists():  # the network may have an authority of its own
            binds.append([str(_HOST_CA_FILE), _CA_FILE])
            environment |= {"SSL_CERT_FILE": _CA_FILE, "PIP_CERT": _CA_FILE}
        for target in step.cache_dirs:
            source = self._user_cache / Path(target).name  # /root/.cache/uv: the user's own
            source.mkdir(parents=True, exist_ok=True)
            binds.append([str(source), target])
        for folder in (work, root):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        plan = upper.with_name("plan.json")
        plan.write_text(
            json.dumps(
                {
                    "root": str(root), "lower": ":".join(map(str, lower)), "upper": str(upper),
                    "work": str(work), "binds": binds, "command": step.command,
                    "environment": environment,
                }
            )
        )  # fmt: skip
        package_root = Path(__file__).resolve().parents[2]
        with Progress(title) as progress:
            run_shown(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable,
                 "-m", "chiasm_cluster.images.chroot", plan],
                progress, cwd=Path("/"),
                environment={**os.environ, "PYTHONPATH": str(package_root)},
            )  # fmt: skip
        _remove_mount_points(upper, [target for _, target in binds])
        for folder in (work, root):
            shutil.rmtree(folder)
        plan.unlink()


def _remove_mount_points(upper: Path, targets: list[str]) -> None:
    """Remove the empty files and folders that were only made to mount something on."""
    for target in targets:
        path = upper / target.strip("/")
        if path.is_file() and path.stat().st_size == 0:
            path.unlink()
        while path != upper:
            with suppress(OSError):
                path.rmdir()
            path = path.parent


def _partial_copy(source: Path, target: str) -> Callable[[Path], None]:
    def fill(tree: Path) -> None:
        _copy(source, tree / target.strip("/"))

    return fill


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder's content, with plain modes and without Python's caches."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)
        return
    target.mkdir(exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.name not in _NOT_COPIED:
            _copy(entry, target / entry.name)


def _content_digest(source: Path) -> str:
    """The digest of what `_copy` would copy."""
    state = hashlib.sha256()
    files = [source] if source.is_file() else sorted(source.rglob("*"))
    for path in files:
        if path.is_file() and not _NOT_COPIED & set(path.relative_to(source.parent).parts):
            mode = "x" if os.access(path, os.X_OK) else "-"
            state.update(f"{path.relative_to(source.parent)}\0{mode}\0".encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()
