from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.host import requirements
from chiasm_cluster.host.requirements import Need, ensure_packages

ABSENT = Need("left-handed-hammer", "left-handed-hammer")


def test_what_is_there_needs_nothing() -> None:
    said: list[str] = []
    ensure_packages([Need("coreutils", "ls"), Need("base-files", file="/etc/passwd")], said.append)
    assert said == []


def test_a_system_without_apt_get_is_told_the_packages_names() -> None:
    with pytest.raises(ClusterError, match=r"no apt-get, so install .*: left-handed-hammer\."):
        ensure_packages([ABSENT], print, apt="")


def test_packages_are_named_before_they_are_installed(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    calls = tmp_path / "calls"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    apt.chmod(0o755)
    said: list[str] = []
    ensure_packages([ABSENT], lambda words: said.append(f"{words} {calls.exists()}"), str(apt))
    assert said == ["Installing the Debian packages left-handed-hammer. False"]
    assert calls.read_text().splitlines() == [
        "update -q",
        "install -q -y --no-install-recommends left-handed-hammer",
    ]


def test_a_failed_install_quotes_apt(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho 'E: Unable to locate package'\nexit 100\n")
    apt.chmod(0o755)
    with pytest.raises(ClusterError, match="Unable to locate package"):
        ensure_packages([ABSENT], print, str(apt))


def test_root_is_required_and_the_alternative_named() -> None:
    requirements.require_root(0)
    with pytest.raises(ClusterError, match=r"needs root; run .* with sudo, .* CLUSTER=current"):
        requirements.require_root(1000)


def test_another_system_is_refused() -> None:
    requirements.require_linux("Linux")
    with pytest.raises(ClusterError, match="runs on Linux, this is Darwin; use a Linux virtual"):
        requirements.require_linux("Darwin")


def test_too_little_disk_is_refused_before_anything_begins(tmp_path: Path) -> None:
    requirements.require_disk(tmp_path, 1, "Building")
    with pytest.raises(ClusterError, match=r"Building needs 1048576 GiB in .* are free; make room"):
        requirements.require_disk(tmp_path, 2**50, "Building")
