"""The folder of what is in use."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_sidecar.configuration.current import Current, Record


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Else a folder that is full would be tried again and again, and never have room."""
    current = Current(tmp_path / "store")
    for _ in range(3):
        with pytest.raises(OSError, match="No such file"):
            current.stage({"a": b"1", "no/entry": b"2"}, Record(id="1"))
    assert list(current.path.iterdir()) == []
