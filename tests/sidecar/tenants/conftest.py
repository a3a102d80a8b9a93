"""A Secret as the kubelet mounts it, and changes it: by pointing one link elsewhere."""

from __future__ import annotations

import contextlib
import itertools
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chiasm_contract.tenants import TenantKeys

SERVER_KEY = "s" * 40
ACME, GLOBEX = "acme-key-0123456789", "globex-key-01234567"


class MountedSecret:
    """The folder in a container."""

    def __init__(self, path: Path, **content: str) -> None:
        self.path = path
        self._numbers = itertools.count()
        path.mkdir()
        self.change(**content)

    def change(self, **content: str) -> None:
        """What the kubelet does when the Secret has other content."""
        link = self.path / "..data"
        before = link.resolve() if link.is_symlink() else None
        folder = self.path / f"..2026_{next(self._numbers)}"
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
            file = self.path / name
            if not file.is_symlink():
                file.symlink_to(f"..data/{name}")
        fresh = self.path / "..data_tmp"
        fresh.symlink_to(folder.name)
        fresh.rename(link)
        for file in self.path.iterdir():
            if not file.name.startswith("..") and file.name not in content:
                file.unlink()
        if before is not None:
            shutil.rmtree(before)


@contextlib.contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    """As in a process that has all the files open that it may have: each may still be looked at."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def keys(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "keys", acme=ACME, globex=GLOBEX)


@pytest.fixture
def server_key(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "server", **{"server-key": SERVER_KEY})


@pytest.fixture
def paths(keys: MountedSecret, server_key: MountedSecret) -> TenantKeys:
    return TenantKeys(keys_path=keys.path, server_key_path=server_key.path / "server-key")
