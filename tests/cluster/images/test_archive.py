from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from chiasm_cluster.images import archive
from chiasm_cluster.images.load import chain_ids


def tree_bytes(root: Path) -> bytes:
    out = io.BytesIO()
    archive.write_tree(out, root)
    return out.getvalue()


def tree(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "tool").write_text("#!/bin/sh\n")
    (root / "bin" / "tool").chmod(0o755)
    os.link(root / "bin" / "tool", root / "bin" / "twin")
    (root / "link").symlink_to("/bin/tool")
    (root / ("ä" * 60)).write_text("long name")
    return root


def test_the_same_files_give_the_same_bytes_whenever_they_were_made(tmp_path: Path) -> None:
    one, other = tree(tmp_path / "one"), tree(tmp_path / "other")
    os.utime(other / "bin" / "tool", (1, 1))
    assert tree_bytes(one) == tree_bytes(other)
    (other / "bin" / "tool").chmod(0o700)
    assert tree_bytes(one) != tree_bytes(other)


def test_a_tree_comes_out_as_it_went_in(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    with tarfile.open(fileobj=io.BytesIO(tree_bytes(root))) as tar:
        members = {member.name: member for member in tar}
    assert list(members) == ["bin", "bin/tool", "bin/twin", "link", "ä" * 60]
    assert members["bin/tool"].mode == 0o755
    assert (members["bin/twin"].islnk(), members["bin/twin"].linkname) == (True, "bin/tool")
    assert (members["link"].issym(), members["link"].linkname) == (True, "/bin/tool")
    assert {member.mtime for member in members.values()} == {0}


@pytest.mark.cluster
def test_deleted_files_become_whiteouts(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    os.mknod(tmp_path / "etc" / "gone", 0o20000, os.makedev(0, 0))
    (tmp_path / "replaced").mkdir()
    os.setxattr(tmp_path / "replaced", "trusted.overlay.opaque", b"y")
    with tarfile.open(fileobj=io.BytesIO(tree_bytes(tmp_path))) as tar:
        assert tar.getnames() == ["etc", "etc/.wh.gone", "replaced", "replaced/.wh..wh..opq"]


def layer(content: bytes) -> archive.Layer:
    def write(out: IO[bytes]) -> None:
        out.write(content)

    return archive.measured(write)


def image(*layers: archive.Layer) -> archive.Image:
    return archive.Image("docker.io/chiasm/x:1", {"os": "linux", "config": {}}, layers)


def members(made: archive.Image) -> dict[str, bytes]:
    out = io.BytesIO()
    archive.write_archive(out, made)
    out.seek(0)
    found = {}
    with tarfile.open(fileobj=out) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            found[member.name] = content.read()
    return found


def test_every_blob_is_named_by_its_digest_and_every_reference_holds() -> None:
    made = image(layer(b"a" * 1000), layer(b"b" * 512), layer(b""))
    found = members(made)
    blobs = {
        name.removeprefix("blobs/sha256/"): blob for name, blob in found.items() if "/" in name
    }
    assert all(hashlib.sha256(blob).hexdigest() == name for name, blob in blobs.items())

    def follow(reference: dict[str, Any]) -> bytes:
        blob = blobs[reference["digest"].removeprefix("sha256:")]
        assert len(blob) == reference["size"]
        return blob

    entry = json.loads(found["index.json"])["manifests"][0]
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/chiasm/x:1"
    assert entry["digest"] == made.digest
    manifest = json.loads(follow(entry))
    config = json.loads(follow(manifest["config"]))
    digests = [f"sha256:{hashlib.sha256(follow(each)).hexdigest()}" for each in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == digests


def test_a_layer_that_the_receiver_has_is_left_out_and_the_digest_stays() -> None:
    whole = image(layer(b"a" * 1000), layer(b"b"))
    partial = replace(whole, layers=(replace(whole.layers[0], write=None), whole.layers[1]))
    assert partial.digest == whole.digest
    missing = set(members(whole)) - set(members(partial))
    assert missing == {f"blobs/sha256/{hashlib.sha256(b'a' * 1000).hexdigest()}"}


def test_a_layer_used_twice_is_sent_once() -> None:
    assert len(members(image(layer(b"a"), layer(b"a")))) == 5


def test_chain_ids_are_ocis() -> None:
    one, two = layer(b"1"), layer(b"2")
    first, second = one.descriptor.digest, two.descriptor.digest
    joined = hashlib.sha256(f"{first} {second}".encode()).hexdigest()
    assert chain_ids(image(one, two)) == [first, f"sha256:{joined}"]
