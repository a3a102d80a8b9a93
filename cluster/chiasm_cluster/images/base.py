"""The base of images that are made here: a minimal Debian with Python, made by mmdebstrap.

It stands in for the base image that the Dockerfiles name, which no registry needs to serve. The
packages come from the mirror that this machine itself uses, where it uses one.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from chiasm_cluster.host import requirements
from chiasm_cluster.progress import Progress, run_shown

_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "python3", "python3-pip")
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_APT = Path("/etc/apt")


class BaseImage:
    """Debian with Python, as one layer."""

    name = f"debian-{_SUITE}-python3"

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    @property
    def key(self) -> str:
        """Changes when what it consists of does."""
        words = [self.name, *_PACKAGES, *_LEFT_OUT]
        return f"base-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:16]}"

    def fill(self, tree: Path) -> None:
        """Put the base's files into the empty folder `tree`.

        Raises: ClusterError with mmdebstrap's last words when it fails.
        """
        requirements.ensure_packages(requirements.TO_MAKE_IMAGES, self._say)
        tree.rmdir()  # mmdebstrap makes it itself
        excluded = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        with Progress("Debian base of the images") as progress:
            run_shown(
                ["mmdebstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}",
                 '--aptopt=Acquire::Languages "none"', *excluded, _SUITE, tree, *mirror(_APT)],
                progress,
            )  # fmt: skip
        for leftover in ("dev", "var/cache/apt", "var/lib/apt/lists", "var/log"):
            shutil.rmtree(tree / leftover, ignore_errors=True)
            (tree / leftover).mkdir()


def mirror(apt_dir: Path) -> list[str]:
    """The Debian mirror in this machine's own apt sources; none leaves it to mmdebstrap."""
    files = [apt_dir / "sources.list", *sorted((apt_dir / "sources.list.d").glob("*"))]
    for path in files:
        if path.is_file():
            found = re.search(r"https?://\S+/debian/?(?=\s)", path.read_text())
            if found is not None:
                return [found[0].rstrip("/")]
    return []
