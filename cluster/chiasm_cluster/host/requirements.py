"""What the machine must offer, and the Debian packages that are installed when they are missing.

Each refusal is one sentence that says what to do. Nothing is installed without being named first.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from chiasm_cluster.errors import ClusterError
from chiasm_cluster.progress import Progress, run_shown

GIB = 1024**3
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Need:
    """A program or file to be found on this machine, and the package that brings it."""

    package: str
    program: str = ""
    file: str = ""

    @property
    def present(self) -> bool:
        """Whether it is there."""
        return Path(self.file).exists() if self.file else find_program(self.program) is not None


TO_RUN = (
    Need("iproute2", "ip"),
    Need("nftables", "nft"),
    Need("iptables", "iptables"),
    Need("conntrack", "conntrack"),
    Need("procps", "sysctl"),
    Need("util-linux", "nsenter"),
)
TO_BUILD = (
    Need("gcc", "gcc"),
    Need("libc6-dev", file="/usr/include/stdlib.h"),
    Need("pkg-config", "pkg-config"),
    Need("libseccomp-dev", file="/usr/include/seccomp.h"),
)
TO_MAKE_IMAGES = (
    Need("mmdebstrap", "mmdebstrap"),
    Need("debian-archive-keyring", file="/usr/share/keyrings/debian-archive-keyring.gpg"),
)


def find_program(name: str) -> str | None:
    """Where program `name` is; the system's folders count even if PATH lacks them."""
    return shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)


def require_root(user_id: int | None = None) -> None:
    """Refuse anybody but root.

    Raises: ClusterError.
    """
    if (os.geteuid() if user_id is None else user_id) != 0:
        raise ClusterError(
            "The local cluster makes network namespaces and mounts, which needs root; run the same "
            "command with sudo, or use a cluster of yours with CLUSTER=current."
        )


def require_linux(system: str | None = None) -> None:
    """Refuse everything but Linux.

    Raises: ClusterError.
    """
    found = system or platform.system()
    if found != "Linux":
        raise ClusterError(
            f"The local cluster runs on Linux, this is {found}; use a Linux virtual machine, or a "
            "cluster of yours with CLUSTER=current."
        )


def require_disk(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Refuse to begin what would fill the disk of `folder`.

    Raises: ClusterError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise ClusterError(
            f"{purpose} needs {needed_bytes / GIB:.0f} GiB in {folder} and {free / GIB:.1f} GiB "
            "are free; make room, or set XDG_CACHE_HOME to a folder on a larger disk."
        )


def ensure_packages(
    needs: Iterable[Need], say: Callable[[str], None], apt: str | None = None
) -> None:
    """Install the Debian packages behind those `needs` that are missing, after saying so.

    Raises: ClusterError on a system without apt-get, or when installing fails.
    """
    missing = sorted({need.package for need in needs if not need.present})
    if not missing:
        return
    apt_get = find_program("apt-get") if apt is None else apt
    if not apt_get:
        raise ClusterError(
            "This system has no apt-get, so install what corresponds to these Debian packages with "
            f"its own package manager and try again: {', '.join(missing)}."
        )
    say(f"Installing the Debian packages {', '.join(missing)}.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with Progress("Debian packages") as progress:
        run_shown([apt_get, "update", "-q"], progress, environment=environment)
        run_shown(
            [apt_get, "install", "-q", "-y", "--no-install-recommends", *missing],
            progress,
            environment=environment,
        )
