"""One node's image store, through its container runtime's own client."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import IO

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host.commands import run
from chiasm_cluster.images import archive

_ID = "sha256:"


class ImageStore:
    """The images of one node; `ctr` is the client's command without its subcommand."""

    def __init__(self, ctr: Sequence[str]) -> None:
        self._ctr = list(ctr)

    def digests(self) -> dict[str, str]:
        """The digest of every image, by name."""
        return {name: digest for name, digest in self._records() if not _is_derived(name)}

    def _records(self) -> list[tuple[str, str]]:
        """Every record of an image and its digest: by name, and again by its id and digest."""
        rows = run([*self._ctr, "images", "list"]).splitlines()[1:]
        return [(row.split()[0], row.split()[2]) for row in rows if row.strip()]

    def snapshots(self) -> set[str]:
        """The chain ids of all layers that lie unpacked here."""
        rows = run([*self._ctr, "snapshots", "list"]).splitlines()[1:]
        return {row.split()[0] for row in rows if row.strip()}

    def import_image(self, image: archive.Image) -> None:
        """Bring `image` in; layers are unpacked on the way and their packed form is dropped."""
        self.import_stream(lambda out: archive.write_archive(out, image))

    def import_stream(self, write: Callable[[IO[bytes]], None]) -> None:
        """Bring in the archive that `write` writes.

        Raises: ClusterError with the runtime's words when it refuses.
        """
        command = [*self._ctr, "images", "import", "--local", "--discard-unpacked-layers", "-"]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT
            )
            assert process.stdin is not None  # noqa: S101 -- PIPE was asked for above
            broken = False
            with process.stdin as out:
                try:
                    write(out)
                except BrokenPipeError:
                    broken = True
            if process.wait() != 0 or broken:
                said.seek(0)
                words = said.read().decode(errors="replace").strip()
                raise ClusterError(f"The container runtime refused the image: {words}")
        self.renew_references()

    def renew_references(self) -> None:
        """Have exactly one record by id and one by digest (`repository@sha256:...`) of each image.

        The kubelet mounts images by their id, the digest of their configuration, and pods that
        must not meet another image under the same tag ask by digest. The runtime makes neither
        record for a name that moves to another image, and never removes one, so that the old
        image's layers would stay for ever.
        """
        records = self._records()
        wanted: dict[str, str] = {}
        for name, digest in records:
            if not _is_derived(name):
                wanted[self._id(digest)] = name
                wanted[f"{_repository(name)}@{digest}"] = name
        present = {name for name, _ in records if _is_derived(name)}
        for reference in wanted.keys() - present:
            run([*self._ctr, "images", "tag", "--force", "--skip-reference-check",
                 wanted[reference], reference])  # fmt: skip
        stale = present - wanted.keys()
        if stale:
            run([*self._ctr, "images", "remove", *stale])

    def _id(self, digest: str) -> str:
        """The id of the image whose manifest, or index of manifests, has `digest`."""
        found = json.loads(run([*self._ctr, "content", "get", digest]))
        if "manifests" not in found:
            return str(found["config"]["digest"])
        ours = [
            entry["digest"]
            for entry in found["manifests"]
            if entry.get("platform", {}).get("architecture") in {None, archive.architecture()}
        ]
        return self._id(ours[0])


def _is_derived(name: str) -> bool:
    return name.startswith(_ID) or "@" in name


def _repository(name: str) -> str:
    """`name` without its tag; a port of its registry is no tag."""
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
