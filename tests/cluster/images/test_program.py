from __future__ import annotations

from pathlib import Path

from chiasm_cluster.images import archive, program


def test_the_program_is_the_entry_point_and_lies_above_its_base(tmp_path: Path) -> None:
    path = tmp_path / "controller"
    path.write_bytes(b"\x7fELF")
    base = archive.of_program(path, "/etc/base")
    alone = program.image("example.com/controller:1", path)
    based = program.image("example.com/controller:1", path, base)
    assert alone.config["config"]["Entrypoint"] == ["/usr/local/bin/controller"]
    assert based.layers == (base, *based.layers[1:])
    descriptors = [layer.descriptor for layer in based.layers]
    assert descriptors == [base.descriptor, alone.layers[0].descriptor]


def test_it_does_not_run_as_root(tmp_path: Path) -> None:
    path = tmp_path / "controller"
    path.write_bytes(b"")
    user = program.image("example.com/controller:1", path).config["config"]["User"]
    assert user.split(":")[0] not in {"", "0", "root"}
