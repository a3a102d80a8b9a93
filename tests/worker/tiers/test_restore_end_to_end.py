"""A worker without memory of its own answers from the tiers what another one computed."""

from __future__ import annotations

from pathlib import Path

from chiasm_worker.equality import Prepared, ask
from chiasm_worker.kvcache.rebuild_cost import BlockKind

from tests.worker.tiers.block_service import Service, serving
from tests.worker.tiers.conftest import rig

TALK = ask("How are you, and what do you do at this hour, in this weather, with these shoes? " * 2)


async def test_text_comes_back_in_another_worker(qwen: Prepared, tmp_path: Path):
    [want] = qwen.generate(qwen.engine(), [TALK], 8)
    async with serving(Service(tmp_path)) as service:
        async with rig(qwen, service.socket_path) as first:
            assert await first.ask(TALK) == want
            num_full = (len(qwen.prompt(TALK)[0].token_ids) + 7) // 16
            await first.stored(service, num_full)
            assert first.counters.restored_tokens.total() == 0
        async with rig(qwen, service.socket_path) as second:
            assert await second.ask(TALK) == want
            num_prompt = len(qwen.prompt(TALK)[0].token_ids)
            usable = (num_prompt - 1) // 16 * 16
            assert second.counters.restored_tokens == {BlockKind.TEXT_KV: usable}
            assert second.engine.scheduler.counters.prefix_hit_tokens == usable
            assert not service.slots_out
