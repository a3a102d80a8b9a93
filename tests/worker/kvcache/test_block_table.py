from __future__ import annotations

from chiasm_worker.kvcache.block_table import BlockTable


def test_missing_blocks_round_up():
    table = BlockTable(4, block_ids=[7])
    assert [table.num_missing(n) for n in (0, 4, 5, 8, 9)] == [0, 0, 1, 1, 2]


def test_take_all_gives_the_last_block_first():
    table = BlockTable(4, block_ids=[7, 2, 5], num_committed=2)
    assert table.take_all() == [5, 2, 7]
    assert table == BlockTable(4)
