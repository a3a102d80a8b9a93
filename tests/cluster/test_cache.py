from __future__ import annotations

import time
from pathlib import Path

from chiasm_cluster import cache


def test_only_what_was_unused_for_two_weeks_is_deleted(tmp_path: Path) -> None:
    for name in ("used", "unused"):
        (tmp_path / name / "tree").mkdir(parents=True)
    in_15_days = time.time() + 15 * 86400
    assert cache.prune(tmp_path) == []
    assert set(cache.prune(tmp_path, now=in_15_days)) == {tmp_path / "used", tmp_path / "unused"}
    assert list(tmp_path.iterdir()) == []


def test_using_an_entry_keeps_it(tmp_path: Path) -> None:
    import os

    entry = tmp_path / "entry"
    entry.mkdir()
    os.utime(entry, (0, 0))
    cache.use(entry)
    assert cache.prune(tmp_path) == []
