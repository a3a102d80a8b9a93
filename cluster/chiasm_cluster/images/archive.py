"""OCI images as streams: deterministic layers, and the archive that carries them.

An archive is written straight into whoever reads it; no copy of a layer is ever kept. Since a
blob's name is its digest, each layer is read twice: once to learn the digest, once to send it.
Layers that the receiver already has may be left out of the archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK_BYTES = 1024**2


@dataclass(frozen=True)
class Descriptor:
    """A blob by type, digest ("sha256:...") and size."""

    media_type: str
    digest: str
    size_bytes: int

    def as_json(self) -> dict[str, Any]:
        """As OCI writes it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}


@dataclass(frozen=True)
class Layer:
    """A layer and how to write it; `write` is None when only its receiver still has it."""

    descriptor: Descriptor
    write: Callable[[IO[bytes]], None] | None


@dataclass(frozen=True)
class Image:
    """A complete image under one name."""

    name: str
    config: dict[str, Any]
    layers: tuple[Layer, ...]

    @property
    def config_bytes(self) -> bytes:
        """The configuration blob, with the layers' digests in it."""
        digests = [layer.descriptor.digest for layer in self.layers]
        return _json({**self.config, "rootfs": {"type": "layers", "diff_ids": digests}})

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest blob."""
        return _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": descriptor(CONFIG_TYPE, self.config_bytes).as_json(),
                "layers": [layer.descriptor.as_json() for layer in self.layers],
            }
        )

    @property
    def digest(self) -> str:
        """The image's digest: that of its manifest."""
        return descriptor(MANIFEST_TYPE, self.manifest_bytes).digest


class Counting(io.RawIOBase):
    """A sink that only measures and digests what is written to it."""

    def __init__(self) -> None:
        self._state = hashlib.sha256()
        self.num_bytes = 0

    def writable(self) -> bool:
        """It is only ever written to."""
        return True

    def write(self, data: Any) -> int:
        """Take in `data`."""
        self._state.update(data)
        self.num_bytes += len(data)
        return len(data)

    @property
    def digest(self) -> str:
        """The digest of everything written so far."""
        return f"sha256:{self._state.hexdigest()}"


def descriptor(media_type: str, blob: bytes) -> Descriptor:
    """The descriptor of a blob in memory."""
    return Descriptor(media_type, f"sha256:{hashlib.sha256(blob).hexdigest()}", len(blob))


def measured(write: Callable[[IO[bytes]], None]) -> Layer:
    """The layer that `write` writes, read through once to learn its digest."""
    sink = Counting()
    write(sink)  # type: ignore[arg-type]  # RawIOBase is the part of IO[bytes] that is used
    return Layer(Descriptor(LAYER_TYPE, sink.digest, sink.num_bytes), write)


def of_program(program: Path, path: str) -> Layer:
    """The layer that is one program, at `path`."""

    def write(out: IO[bytes]) -> None:
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            info = tarfile.TarInfo(path.removeprefix("/"))
            info.size, info.mode = program.stat().st_size, 0o755
            with program.open("rb") as content:
                tar.addfile(info, content)

    return measured(write)


def write_archive(out: IO[bytes], image: Image) -> None:
    """Write `image` as an OCI archive, leaving out the layers that have no writer."""
    config, manifest = image.config_bytes, image.manifest_bytes
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [
            {
                **descriptor(MANIFEST_TYPE, manifest).as_json(),
                "annotations": {
                    "io.containerd.image.name": image.name,
                    "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
                },
            }
        ],
    }
    _add(out, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    for blob, kind in ((config, CONFIG_TYPE), (manifest, MANIFEST_TYPE)):
        _add(out, _blob_path(descriptor(kind, blob).digest), blob)
    for digest, layer in {layer.descriptor.digest: layer for layer in image.layers}.items():
        if layer.write is not None:
            size = layer.descriptor.size_bytes
            out.write(_header(_blob_path(digest), size))
            layer.write(out)
            out.write(_padding(size))
    _add(out, "index.json", _json(index))
    out.write(b"\0" * 2 * tarfile.BLOCKSIZE)


def write_tree(out: IO[bytes], root: Path) -> None:
    """Write the folder `root` as a layer: the same files give the same bytes.

    Times are dropped. The marks that overlayfs leaves for deleted files become OCI whiteouts.
    """
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        links: dict[tuple[int, int], str] = {}
        for path in _walk(root):
            _add_path(tar, root, path, links)


def _walk(folder: Path) -> Iterable[Path]:
    """Everything below `folder`, each folder before its content, in order."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))


def _add_path(
    tar: tarfile.TarFile, root: Path, path: Path, links: dict[tuple[int, int], str]
) -> None:
    name = str(path.relative_to(root))
    status = path.lstat()
    if stat.S_ISSOCK(status.st_mode):
        return
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
        tar.addfile(_plain(tarfile.TarInfo(str(Path(name).parent / f"{_WHITEOUT}{path.name}"))))
        return
    info = _plain(tar.gettarinfo(path, arcname=name))
    info.uid, info.gid, info.mode = status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)
    inode = (status.st_dev, status.st_ino)
    info.type, info.linkname = _kind(status, path, links.get(inode))
    if info.type == tarfile.REGTYPE:
        links[inode] = name
        info.size = status.st_size
        with path.open("rb") as content:
            tar.addfile(info, content)
        return
    info.size = 0
    tar.addfile(info)
    if info.isdir() and _is_opaque(path):
        tar.addfile(_plain(tarfile.TarInfo(f"{name}/{_OPAQUE}")))


def _kind(status: os.stat_result, path: Path, earlier_name: str | None) -> tuple[bytes, str]:
    """The entry's type and what it links to."""
    if stat.S_ISREG(status.st_mode):
        if status.st_nlink > 1 and earlier_name is not None:
            return tarfile.LNKTYPE, earlier_name
        return tarfile.REGTYPE, ""
    if stat.S_ISLNK(status.st_mode):
        return tarfile.SYMTYPE, str(path.readlink())
    if stat.S_ISDIR(status.st_mode):
        return tarfile.DIRTYPE, ""
    if stat.S_ISCHR(status.st_mode):
        return tarfile.CHRTYPE, ""
    return (tarfile.BLKTYPE if stat.S_ISBLK(status.st_mode) else tarfile.FIFOTYPE), ""


def _is_opaque(path: Path) -> bool:
    try:
        return os.getxattr(path, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop what differs between two builds of the same thing."""
    info.mtime = 0
    info.uname = info.gname = ""
    return info


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _header(name: str, size_bytes: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size_bytes: int) -> bytes:
    return b"\0" * (-size_bytes % tarfile.BLOCKSIZE)


def _add(out: IO[bytes], name: str, blob: bytes) -> None:
    out.write(_header(name, len(blob)) + blob + _padding(len(blob)))


def architecture() -> str:
    """This machine's architecture in OCI's words."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
