"""One node's image store, through its container runtime's own client."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from typing import IO

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host.commands import run
from chiasm_cluster.images import archive


class ImageStore:
    """The images of one node; `ctr` is the client's command without its subcommand."""

    def __init__(self, ctr: Sequence[str]) -> None:
        self._ctr = list(ctr)

    def digests(self) -> dict[str, str]:
        """The digest of every image, by name."""
        rows = run([*self._ctr, "images", "list"]).splitlines()[1:]
        return {row.split()[0]: row.split()[2] for row in rows if row.strip()}

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
