from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chiasm_cluster.build import gateway


def test_what_another_built_meanwhile_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one held the lock, and has the folder ready when it lets go."""
    folder = tmp_path / "gateway" / gateway.digest()

    @contextmanager
    def locked(name: str) -> Iterator[None]:
        folder.mkdir(parents=True)
        (folder / gateway.PROGRAM).write_text("built by another")
        yield

    monkeypatch.setattr(gateway, "locked", locked)
    monkeypatch.setattr(gateway, "find_go", lambda: "no-such-go")
    monkeypatch.setattr(gateway.requirements, "require_disk", lambda *_: None)
    said: list[str] = []
    program = gateway.ensure_program(tmp_path, said.append)
    assert program.read_text() == "built by another"
    assert said == []
