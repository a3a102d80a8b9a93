"""Restored runs equal cold runs: for each kind of block, at any length of what the tiers have."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.kvcache.rebuild_cost import BlockKind
from PIL import Image

from tests.worker.tiers.block_service import Service, serving
from tests.worker.tiers.conftest import chain_keys, num_stale, rig

FAMILIES = ["qwen3-grouped", "gemma3-narrow-window", "mllama-grouped", "llava-next-mistral"]


def picture(seed: int, width: int, height: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


TALK = ask(
    "Which of these is larger, and which has more colours in it than the other?",
    [picture(8, 60, 120), picture(7, 90, 70)],
)


def lengths(num_blocks: int) -> list[int]:
    return sorted({0, 1, num_blocks // 2, num_blocks - 1, num_blocks})


@pytest.mark.parametrize("name", FAMILIES)
async def test_what_another_worker_computed_gives_the_same_answer(
    name: str, prepared: Callable[[str], Prepared], tmp_path: Path
):
    model = prepared(name)
    [want] = model.generate(model.engine(), [TALK], 8)
    chain = chain_keys(model, TALK)
    async with serving(Service(tmp_path, 512, 512)) as service:
        async with rig(model, service.socket_path) as first:
            assert await first.ask(TALK) == want
            offered = first.counters.offered_blocks
            await first.stored(service, offered.total())
            num_encodes = first.engine.runner.encoding.num_items
        honest = dict(service.records)
        for num_kept in lengths(len(chain)):
            gone = set(chain[num_kept:])
            service.records = {k: v for k, v in honest.items() if k not in gone}
            async with rig(model, service.socket_path) as other:
                assert await other.ask(TALK) == want
                assert num_stale(other.engine, honest) == 0
                # Everything that an encoder made came from the tiers, where it was read at all.
                assert other.engine.runner.encoding.num_items == 0
                restored = other.counters.restored_tokens
                in_chain = restored[BlockKind.TEXT_KV] + restored[BlockKind.MEDIA_KV]
                assert in_chain <= num_kept * 16
                assert other.engine.scheduler.counters.prefix_hit_tokens <= in_chain
    assert num_encodes > 0


@pytest.mark.parametrize("name", FAMILIES)
async def test_an_entry_that_is_not_whole_is_encoded_anew(
    name: str, prepared: Callable[[str], Prepared], tmp_path: Path
):
    model = prepared(name)
    [want] = model.generate(model.engine(), [TALK], 8)
    async with serving(Service(tmp_path, 512, 512)) as service:
        async with rig(model, service.socket_path) as first:
            await first.ask(TALK)
            await first.stored(service, first.counters.offered_blocks.total())
        chain = set(chain_keys(model, TALK))
        entries = [key for key in service.records if key not in chain]
        for key in entries[::2]:
            del service.records[key]
        for key in chain:
            service.records.pop(key, None)
        async with rig(model, service.socket_path) as other:
            assert await other.ask(TALK) == want
            assert 0 < other.engine.runner.encoding.num_items <= 2
