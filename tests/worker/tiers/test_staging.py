"""Slots are where the service says, or the service is not used."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_contract.block_wire import Welcome
from chiasm_worker.tiers.staging import Staging

from tests.worker.tiers.records import staging


def test_write_slots_go_out_once_and_come_back(tmp_path: Path):
    slots = staging(tmp_path / "s", num_read=2, num_write=3)
    assert [slots.take() for _ in range(4)] == [2, 3, 4, None]
    slots.give_back([3])
    assert (slots.num_free, slots.take()) == (1, 3)


def test_records_do_not_overlap_and_are_shared_with_whoever_maps_the_file(tmp_path: Path):
    slots = staging(tmp_path / "s", num_read=1, num_write=1)
    slots.record(0)[:] = b"a" * 320
    slots.record(1)[:] = b"b" * 320
    assert (tmp_path / "s").read_bytes() == b"a" * 320 + b"b" * 320


def test_an_older_mapping_outlives_its_file(tmp_path: Path):
    slots = staging(tmp_path / "s")
    (tmp_path / "s").unlink()
    staging(tmp_path / "s")
    slots.record(0)[:4] = b"mine"
    assert bytes(slots.record(0)[:4]) == b"mine"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slot_bytes": 64}, "slots of 64 bytes; a record here takes 320"),
        ({"num_write_slots": 99}, "99 slots|need"),
        ({"num_read_slots": 0, "num_write_slots": 0}, "0 slots"),
        ({"num_read_slots": -1}, "slots of 320 bytes"),
    ],
)
def test_slots_that_cannot_be_are_refused(changes: dict[str, int], words: str, tmp_path: Path):
    staging(tmp_path / "s", 1, 1)
    given = {"staging_path": str(tmp_path / "s"), "slot_bytes": 320}
    welcome = Welcome(**{**given, "num_read_slots": 1, "num_write_slots": 1, **changes})
    with pytest.raises(ValueError, match=words):
        Staging(welcome, 128)


def test_a_file_that_is_not_there_or_a_link_is_refused(tmp_path: Path):
    staging(tmp_path / "s", 1, 1)
    (tmp_path / "link").symlink_to(tmp_path / "s")
    for name in ("gone", "link"):
        welcome = Welcome(
            staging_path=str(tmp_path / name), slot_bytes=320, num_read_slots=1, num_write_slots=1
        )
        with pytest.raises(OSError, match=name):
            Staging(welcome, 128)
