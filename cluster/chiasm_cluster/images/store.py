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
        return {name: digest for name, digest in self._records() if not name.startswith(_ID)}

    def _records(self) -> list[tuple[str, str]]:
        """Every record of an image and its digest: by name, and once more by its id."""
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
        self.renew_ids()

    def renew_ids(self) -> None:
        """Have exactly one record by id for each image.

        The kubelet mounts images by their id, the digest of their configuration. The runtime makes
        that record for a new name but not for a name that moves to another image, and never
        removes one, so that the old image's layers would stay for ever.
        """
        records = self._records()
        wanted = {self._id(digest): name for name, digest in records if not name.startswith(_ID)}
        present = {name for name, _ in records if name.startswith(_ID)}
        for image_id in wanted.keys() - present:
            run([*self._ctr, "images", "tag", "--force", "--skip-reference-check",
                 wanted[image_id], image_id])  # fmt: skip
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
