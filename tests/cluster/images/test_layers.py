from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.images import archive, base
from chiasm_cluster.images.dockerfile import Copy, Recipe, Run
from chiasm_cluster.images.layers import LayerBuilder


class SmallBase(base.BaseImage):
    """A base of one file, for recipes that run nothing."""

    key = "base-small"  # type: ignore[assignment]

    def fill(self, tree: Path) -> None:
        (tree / "base").write_text("base")


def builder(folder: Path) -> LayerBuilder:
    (folder / "context" / "code" / "__pycache__").mkdir(parents=True, exist_ok=True)
    (folder / "context" / "code" / "main.py").write_text("print(1)")
    (folder / "context" / "code" / "__pycache__" / "main.pyc").write_text("left out")
    return LayerBuilder(folder / "context", folder / "chiasm" / "images", SmallBase(print))


def recipe(*steps: Copy | Run) -> Recipe:
    return Recipe("x", "local", list(steps))


def files(layer: archive.Layer) -> dict[str, int]:
    out = io.BytesIO()
    assert layer.write is not None
    layer.write(out)  # type: ignore[arg-type]
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        return {member.name: member.mode for member in tar}


def test_a_copy_is_a_layer_without_pythons_caches_and_with_plain_modes(tmp_path: Path) -> None:
    made = builder(tmp_path)
    (tmp_path / "context" / "code" / "main.py").chmod(0o600)
    layers = made.layers(recipe(Copy("code", "/opt/code")))
    assert [files(layer) for layer in layers] == [
        {"base": 0o644},
        {"opt": 0o755, "opt/code": 0o755, "opt/code/main.py": 0o644},
    ]


def test_a_layer_changes_with_its_files_and_with_what_is_below(tmp_path: Path) -> None:
    def digests(made: LayerBuilder) -> list[str]:
        one, two = Copy("code", "/a"), Copy("code", "/b")
        return [layer.descriptor.digest for layer in made.layers(recipe(one, two))]

    made = builder(tmp_path)
    before = digests(made)
    (tmp_path / "context" / "code" / "__pycache__" / "other.pyc").write_text("left out too")
    assert digests(made) == before
    (tmp_path / "context" / "code" / "main.py").write_text("print(2)")
    after = digests(made)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert after[2] != before[2]


def test_a_noted_layer_needs_no_files_and_its_files_come_back_when_asked(tmp_path: Path) -> None:
    made, wanted = builder(tmp_path), recipe(Copy("code", "/a"))
    assert not made.is_noted(wanted)
    before = made.layers(wanted)
    trees = list((tmp_path / "chiasm" / "images" / "layers").glob("*/tree"))
    assert len(trees) == 2
    for note in (tmp_path / "chiasm" / "images" / "layers").glob("*/layer.json"):
        note.write_text(json.dumps({**json.loads(note.read_text()), "size": 10**9}))
    made.drop_large_trees(wanted)
    assert not any(tree.exists() for tree in trees)
    assert made.is_noted(wanted)
    after = made.layers(wanted)
    assert [layer.descriptor.digest for layer in after] == [
        layer.descriptor.digest for layer in before
    ]
    assert not any(tree.exists() for tree in trees)
    assert "a/main.py" in files(after[1])


def test_a_source_outside_the_project_or_absent_is_refused(tmp_path: Path) -> None:
    made = builder(tmp_path)
    for source in ("absent", "../../etc/passwd"):
        with pytest.raises(ClusterError, match="there is no such file or folder"):
            made.layers(recipe(Copy(source, "/x")))


@pytest.mark.parametrize(
    ("file", "text", "mirror"),
    [
        ("sources.list", "deb http://mirror.example/debian/ bookworm main", ["http://mirror.example/debian"]),
        ("sources.list.d/debian.sources", "URIs: https://m.example/debian\nSuites: x",
         ["https://m.example/debian"]),
        ("sources.list", "deb http://security.example/debian-security x main", []),
    ],
)  # fmt: skip
def test_the_base_comes_from_the_mirror_that_this_machine_uses(
    tmp_path: Path, file: str, text: str, mirror: list[str]
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / file).write_text(text)
    assert base.mirror(tmp_path) == mirror


@pytest.mark.cluster
def test_a_command_runs_on_the_layers_below_and_leaves_only_what_it_wrote(
    tmp_path: Path, cache_dir: Path
) -> None:
    builder(tmp_path)  # writes the context
    folder = cache_dir / "images" / "layers"
    before = set(folder.glob("*"))
    real = LayerBuilder(tmp_path / "context", cache_dir / "images", base.BaseImage(print))
    mark = cache_dir.parent / "uv" / f"mark-of-{tmp_path.name}"
    command = (
        f"python3 -c \"print(open('/in/main.py').read(), '{tmp_path.name}')\" > $OUT/seen "
        f"&& rm /usr/bin/env && touch /root/.cache/uv/{mark.name} && test -s /etc/resolv.conf"
    )
    copy = Copy("code", "/in")
    try:
        layers = real.layers(recipe(copy, Run(command, {"OUT": "/srv"}, ("/root/.cache/uv",))))
        assert set(files(layers[-1])) == {"srv", "srv/seen", "usr", "usr/bin", "usr/bin/.wh.env"}
        assert mark.exists()
        with pytest.raises(ClusterError, match="no-such-command"):
            real.layers(recipe(copy, Run("no-such-command", {}, ())))
    finally:
        mark.unlink(missing_ok=True)
        for made in set(folder.glob("*")) - before:
            if not made.name.startswith("base-"):
                shutil.rmtree(made)
    assert "images/layers" not in Path("/proc/mounts").read_text()
