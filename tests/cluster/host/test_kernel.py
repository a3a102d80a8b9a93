from __future__ import annotations

from pathlib import Path

from chiasm_cluster.host import kernel


def test_settings_come_back_after_a_change(tmp_path: Path) -> None:
    for name, value in (("vm/overcommit_memory", "0"), ("kernel/panic", "-1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(value + "\n")
    noted = kernel.read_settings(tmp_path)
    assert noted == {"vm/overcommit_memory": "0", "kernel/panic": "-1"}
    (tmp_path / "vm/overcommit_memory").write_text("1\n")
    kernel.restore_settings(noted, tmp_path)
    assert kernel.read_settings(tmp_path) == noted
    assert (tmp_path / "kernel/panic").read_text() == "-1\n", "written although nothing changed"
