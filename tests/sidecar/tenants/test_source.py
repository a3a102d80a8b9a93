"""What is read of a mounted Secret and of a file, and when it counts as changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_contract.tenants import TenantKeys
from chiasm_sidecar.tenants import source
from chiasm_sidecar.tenants.keys import KeysRefused

from tests.sidecar.tenants.conftest import ACME, GLOBEX, SERVER_KEY, MountedSecret


def test_a_secret_is_a_file_for_each_tenant(paths: TenantKeys) -> None:
    content = source.read(paths)
    assert content.entries == {"acme": ACME, "globex": GLOBEX}
    assert content.server_key == SERVER_KEY.encode()


def test_a_change_is_noticed_and_nothing_else_is(
    paths: TenantKeys, keys: MountedSecret, server_key: MountedSecret
) -> None:
    stamps = [source.stamp(paths)]
    source.read(paths)
    assert source.stamp(paths) == stamps[0]
    keys.change(acme=GLOBEX)
    stamps.append(source.stamp(paths))
    assert source.read(paths).entries == {"acme": GLOBEX}
    server_key.change(**{"server-key": "t" * 40})
    stamps.append(source.stamp(paths))
    assert source.read(paths).server_key == b"t" * 40
    assert len(set(stamps)) == 3


def test_a_file_of_lines_as_kubectl_reads_it(paths: TenantKeys, tmp_path: Path) -> None:
    file = tmp_path / "keys.env"
    file.write_text(f"# ours\nacme={ACME}\n\nglobex=a=b\nacme={GLOBEX}\n")
    lines = paths.model_copy(update={"keys_path": file})
    before = source.stamp(lines)
    assert source.read(lines).entries == {"acme": f"{ACME}\n{GLOBEX}\n", "globex": "a=b\n"}
    file.write_text(f"acme={ACME}\n")
    assert source.stamp(lines) != before
    for wrong in (ACME, "sk/0123456789abcdef=acme", "=x"):
        file.write_text(f"#\n{wrong}\n")
        with pytest.raises(
            KeysRefused, match=r"line 2: write NAME=KEY\. Tenants' names"
        ) as refused:
            source.read(lines)
        assert "0123456789" not in str(refused.value), "it may be a key"


def test_a_plain_folder_is_taken_too(paths: TenantKeys, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "acme").write_text(ACME)
    plain = paths.model_copy(update={"keys_path": folder})
    assert source.read(plain).entries == {"acme": ACME}
    before = source.stamp(plain)
    (folder / "globex").write_text(GLOBEX)
    assert source.stamp(plain) != before


def test_what_cannot_be_read_is_named(paths: TenantKeys, tmp_path: Path) -> None:
    gone = paths.model_copy(update={"server_key_path": tmp_path / "none"})
    source.stamp(gone)
    with pytest.raises(KeysRefused, match="none cannot be read: No such file"):
        source.read(gone)
    gone = paths.model_copy(update={"keys_path": tmp_path / "none"})
    with pytest.raises(KeysRefused, match="none cannot be read: No such file"):
        source.read(gone)


def test_odd_bytes_are_refused_without_showing_them(paths: TenantKeys, keys: MountedSecret) -> None:
    keys.change(acme="schlüssel-der-tür-" * 2)
    with pytest.raises(KeysRefused, match="acme holds other characters than ASCII") as refused:
        source.read(paths)
    assert refused.value.__cause__ is None
    keys.change(acme="x" * (2**20 + 1))
    with pytest.raises(KeysRefused, match="more than 1048576 bytes"):
        source.read(paths)
