"""What a request asks for: what the own pool lacks, and nothing that could not be used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chiasm_contract.block_wire import GroupKind, decode_fetch, encode_fetch
from chiasm_worker.kvcache.rebuild_cost import RebuildCosts
from chiasm_worker.media_identity import CrossSpan, MediaIdentity
from chiasm_worker.request import Request
from chiasm_worker.tiers.wanted import Patience, Wanted

from tests.worker.sched.conftest import SCOPE, compute, request, scheduler
from tests.worker.tiers.test_restore import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(scheduler(64), tmp_path)


def unless(wanted: Wanted) -> list[tuple[bytes, int]]:
    return [(entry.item.digest[:1], entry.unless_chain) for entry in wanted.entries]


def test_the_last_token_is_computed_whatever_there_is(world: World):
    assert [len(world.wanted(request("r", n)).chain) for n in (4, 5, 8, 9)] == [0, 1, 1, 2]
    assert not world.wanted(request("r", 4))


def test_a_picture_is_wanted_unless_the_chain_goes_beyond_it(world: World):
    # Blocks of 4: the first picture ends at 9, within block 2; the second at 19, in the block
    # whose last token is computed anyway.
    new = request("r", 20, 1, ((2, 7, 1), (12, 7, 2)))
    assert unless(world.wanted(new)) == [(b"\x01", 3), (b"\x02", 0)]


def test_a_picture_behind_what_the_pool_holds_is_counted_from_there(world: World):
    first = request("a", 9, 1, ((1, 6, 1),))
    world.sched.add(first)
    compute(world.sched)
    new = request("b", 26, 1, ((1, 6, 1), (10, 7, 2)))
    wanted = world.wanted(new)
    assert [content.token_ids[0] for content in wanted.chain] == [8, 12, 16, 20]
    assert unless(wanted) == [(b"\x02", 3)]  # the first picture's blocks are all in the pool


def test_a_picture_that_the_pool_holds_is_not_asked_for(world: World):
    first = request("a", 9, 1, ((1, 6, 1),))
    world.sched.add(first)
    compute(world.sched)
    assert unless(world.wanted(request("b", 26, 1, ((9, 6, 1),), first=100))) == []


def test_a_picture_shown_twice_is_asked_for_once_and_until_its_last_place(world: World):
    new = request("r", 30, 1, ((1, 6, 1), (12, 6, 1)))
    assert unless(world.wanted(new)) == [(b"\x01", 5)]
    new = request("r", 18, 1, ((1, 6, 1), (11, 6, 1)))
    assert unless(world.wanted(new)) == [(b"\x01", 0)]


def test_what_is_read_by_cross_attention_is_always_wanted(world: World):
    new = request("r", 30)
    item = MediaIdentity("image", b"d" * 32, (4,), 4)
    crossing = Request(
        "r", replace(new.prompt, cross=(CrossSpan(item, 1, None, 4),)), new.params, SCOPE,
        new.chain, new.table,
    )  # fmt: skip
    assert unless(world.wanted(crossing)) == [(b"d", 0)]


def test_without_a_prefix_cache_only_pictures_are_wanted(world: World):
    new = request("r", 30, 1, ((2, 7, 1),))
    wanted = world.exchange.wanted(new, 0)
    assert (wanted.chain, unless(wanted)) == ((), [(b"\x01", 0)])


def test_the_question_is_one_frame_with_the_chain_first(world: World):
    wanted = world.wanted(request("r", 20, 1, ((2, 7, 1),)))
    fetch = wanted.fetch(3, SCOPE.scope_fp)
    assert decode_fetch(encode_fetch(fetch)) == fetch
    assert (fetch.engine_gen, fetch.scope_fp.hex()) == (3, SCOPE.scope_fp)
    assert [group.kind for group in fetch.groups] == [GroupKind.CHAIN, GroupKind.ENTRY]
    assert fetch.groups[0].keys == tuple(content.key for content in wanted.chain)


def test_nobody_waits_longer_than_computing_would_take(world: World):
    wanted, costs = world.wanted(request("r", 20, 1, ((2, 7, 1),))), RebuildCosts()
    costs.observe_prefill(1000, 10.0)  # 16 tokens of the chain: 0.16 s
    costs.observe_encode("image", 10, 1.0)  # 7 tokens: 0.7 s
    assert Patience(0.0, 9.0).seconds(wanted, costs) == pytest.approx(0.86)
    assert Patience(1.0, 9.0).seconds(wanted, costs) == 1.0
    assert Patience(0.0, 0.5).seconds(wanted, costs) == 0.5
