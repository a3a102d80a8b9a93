"""The images on a real node, from the Dockerfile to the running command."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from chiasm_cluster.host.commands import run
from chiasm_cluster.images import archive
from chiasm_cluster.images.load import PROJECT, ImageFactory, version
from chiasm_cluster.images.store import ImageStore
from chiasm_cluster.node.worker import ctr

pytestmark = pytest.mark.cluster


def stores(cluster: Any) -> list[ImageStore]:
    return [ImageStore(ctr(cluster.record, node)) for node in cluster.record.nodes]


def test_every_node_has_the_image_that_was_printed(two_nodes: Any, cli: Callable[..., str]) -> None:
    lines = cli("load", "--name", two_nodes.name, "operator").splitlines()
    name = f"docker.io/chiasm/operator:{version(PROJECT)}"
    for line, store in zip(lines[-2:], stores(two_nodes), strict=True):
        assert line.startswith(f"{name} is on node-")
        assert store.digests()[name] in line


def test_an_unchanged_image_is_not_imported_again(two_nodes: Any, cli: Callable[..., str]) -> None:
    said = cli("load", "--name", two_nodes.name, "operator")
    assert said.count(" already, sha256:") == 2
    assert "started" not in said


def test_only_the_layers_that_a_node_lacks_are_needed(two_nodes: Any, cache_dir: Path) -> None:
    image = ImageFactory(cache_dir, print).make("operator")
    store = stores(two_nodes)[0]
    assert len(store.snapshots()) >= len(image.layers)
    whole_bytes = sum(layer.descriptor.size_bytes for layer in image.layers)
    content = two_nodes.record.nodes[0].image_dir / "io.containerd.content.v1.content"
    kept_bytes = sum(path.stat().st_size for path in content.rglob("*") if path.is_file())
    assert kept_bytes < whole_bytes / 10, "packed layers lie beside the unpacked ones"


def test_the_command_runs_in_the_image_as_its_user(two_nodes: Any) -> None:
    look = "import os; os.execvp('sh', ['sh', '-c', 'id -u; chiasm version'])"
    two_nodes.kubectl(
        "run", "looker", f"--image=docker.io/chiasm/operator:{version(PROJECT)}",
        "--restart=Never", "--command", "--", "python3", "-c", look,
    )  # fmt: skip
    two_nodes.kubectl(
        "wait", "pod/looker", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"
    )
    assert two_nodes.kubectl("logs", "looker").split() == ["10001", version(PROJECT)]
    two_nodes.kubectl("delete", "pod/looker", "--now")


def test_an_archive_holds_the_same_image_and_loads(
    two_nodes: Any, cli: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "operator.tar"
    cli("archive", "operator", str(path))
    with tarfile.open(path) as tar:
        member = tar.extractfile("index.json")
        assert member is not None
        entry = json.loads(member.read())["manifests"][0]
    name = entry["annotations"]["io.containerd.image.name"]
    assert {store.digests()[name] for store in stores(two_nodes)} == {entry["digest"]}
    said = cli("load", "--name", two_nodes.name, str(path))
    assert said.splitlines() == [f"{path} is on node-1.", f"{path} is on node-2."]


def test_each_image_is_known_by_id_and_by_digest(two_nodes: Any) -> None:
    """Also after its name moved to another image, and the old one is forgotten."""
    name = "docker.io/chiasm/moving:1"
    for layers in ((b"one",), (b"two",)):
        for store, node in zip(stores(two_nodes), two_nodes.record.nodes, strict=True):
            image = small_image(name, *layers)
            store.import_image(image)
            listed = run([*ctr(two_nodes.record, node), "images", "list", "-q"]).split()
            ids = {word for word in listed if word.startswith("sha256:")}
            assert f"sha256:{hashlib.sha256(image.config_bytes).hexdigest()}" in ids
            by_digest = {word for word in listed if "@" in word}
            assert f"docker.io/chiasm/moving@{store.digests()[name]}" in by_digest
            assert len(ids) == len(by_digest) == len(listed) / 3


def small_image(name: str, *contents: bytes) -> archive.Image:
    """An image of one file per layer."""

    def layer(content: bytes) -> archive.Layer:
        def write(out: IO[bytes]) -> None:
            with tarfile.open(fileobj=out, mode="w|") as tar:
                info = tarfile.TarInfo("file")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))

        return archive.measured(write)

    config = {"architecture": archive.architecture(), "os": "linux", "config": {}}
    return archive.Image(name, config, tuple(map(layer, contents)))


def test_a_file_that_is_no_image_is_refused_in_the_runtimes_words(
    two_nodes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from chiasm_cluster.cli import main

    path = tmp_path / "broken.tar"
    path.write_bytes(b"no image" * 1000)
    assert main(["load", "--name", two_nodes.name, str(path)]) == 1
    assert "The container runtime refused the image: " in capsys.readouterr().err
