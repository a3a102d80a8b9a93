"""What is written for the tiers, when, and that writing never waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from chiasm_contract.block_guard import USE, judge_content, judge_header
from chiasm_contract.block_record import Holding, Modality, RecordKind, parse_header, parse_trailer
from chiasm_worker.kvcache.rebuild_cost import BlockKind
from chiasm_worker.request import FinishReason
from chiasm_worker.sched.batch import ScheduledBatch
from chiasm_worker.tiers.exchange import TierExchange
from chiasm_worker.tiers.link import Offer
from chiasm_worker.tiers.staging import Staging
from chiasm_worker.tiers.worth import OfferPolicy
from xxhash import xxh3_64_intdigest

from tests.worker.sched.conftest import SCOPE, request, scheduler
from tests.worker.tiers.records import NAMESPACE, staging
from tests.worker.tiers.test_restore import World, honest, payload_of

EVERYTHING = OfferPolicy(long_chain_tokens=1, bytes_per_second=1e18)
BY_DEMAND = OfferPolicy(long_chain_tokens=16, bytes_per_second=1e18)


class Writer(World):
    """A world whose steps offer what they make."""

    def __init__(self, folder: Path, policy: OfferPolicy, num_write: int = 64) -> None:
        super().__init__(scheduler(64), folder)
        self.exchange = TierExchange(
            self.pool, self.media, self.memory, NAMESPACE, self.link, policy
        )
        self.slots = staging(folder / "write", 0, num_write)
        self.link.staging = self.slots

    def step(self) -> list[Offer]:
        """As Engine.step."""
        batch: ScheduledBatch = self.sched.schedule()
        self.write_encodes(batch)
        computed = [chunk.request for chunk in batch.chunks]
        self.exchange.begin_offers(computed)
        self.sched.update(batch, {c.request.request_id: 7 for c in batch.chunks if c.samples})
        self.write_chunks(batch)
        offers = self.exchange.finish_offers(computed)
        for done in computed:
            if done.num_output_tokens >= done.params.max_tokens:
                self.sched.finish(done, FinishReason.LENGTH)
                self.exchange.end(done)
        return offers

    def keys(self, offers: list[Offer]) -> list[bytes]:
        return [key for offer in offers for key in offer.keys_by_slot.values()]

    def holdings(self, offers: list[Offer]) -> list[Holding]:
        slots = [slot for offer in offers for slot in offer.keys_by_slot]
        return [parse_header(self.slots.record(slot)[:128]).holding for slot in slots]

    def kinds(self, offers: list[Offer]) -> list[RecordKind]:
        return [holding.kind for holding in self.holdings(offers)]


def check_record(slots: Staging, slot: int, key: bytes) -> None:
    data = slots.record(slot)
    assert judge_header(NAMESPACE.expected(SCOPE.scope_fp, key), data[:128]) is USE
    header, payload = parse_header(data[:128]), data[128:256]
    checksum = xxh3_64_intdigest(payload)
    assert judge_content(header, parse_trailer(data[256:]), checksum) is USE
    assert bytes(payload) == payload_of(key)


def test_offers_are_whole_records_of_what_became_findable(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING)
    new = request("r", 13, 6, ((1, 6, 1),))
    world.sched.add(new)
    [offer] = world.step()
    assert (offer.engine_gen, offer.scope_fp) == (NAMESPACE.engine_gen, SCOPE.scope_fp)
    for slot, key in offer.keys_by_slot.items():
        check_record(world.slots, slot, key)
    assert world.holdings([offer]) == [
        *[(RecordKind.ENCODER_OUTPUT, Modality.IMAGE)] * 2,
        *[(RecordKind.MEDIA_KV, Modality.IMAGE)] * 2,
        (RecordKind.TEXT_KV, Modality.TEXT),
    ]
    assert world.link.counters.offered_blocks == {
        BlockKind.ENCODER_OUTPUT: 2, BlockKind.MEDIA_KV: 2, BlockKind.TEXT_KV: 1,
    }  # fmt: skip
    assert [world.step() for _ in range(2)] == [[]] * 2
    [offer] = world.step()  # 17 tokens, 16 of them computed: another block of the answer
    assert world.kinds([offer]) == [RecordKind.TEXT_KV]


def test_nothing_is_written_without_a_connection_or_in_another_generation(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING)
    world.sched.add(request("r", 13, 9, ((1, 6, 1),)))
    world.link.staging = None
    assert world.step() == []
    world.link.staging = world.slots
    world.link.engine_gen += 1
    assert world.step() == []
    world.link.engine_gen -= 1
    assert len(world.keys(world.step())) == 3  # the chain; the picture is no longer held


def test_short_text_goes_when_it_is_used_again(tmp_path: Path):
    world = Writer(tmp_path, BY_DEMAND)
    world.sched.add(request("a", 13, 1))
    assert world.step() == []
    world.sched.add(request("b", 13, 1))
    assert len(world.keys(world.step())) == 3
    world.sched.add(request("c", 13, 1))
    assert world.step() == []


def test_a_long_chain_takes_its_beginning_along(tmp_path: Path):
    world = Writer(tmp_path, BY_DEMAND)
    long = request("r", 14, 9)
    world.sched.add(long)
    assert [len(world.keys(world.step())) for _ in range(3)] == [0, 0, 4]


def test_a_picture_takes_the_text_before_it_along_and_not_that_behind_it(tmp_path: Path):
    world = Writer(tmp_path, BY_DEMAND)
    world.sched.add(request("r", 15, 1, ((5, 3, 1),)))
    assert world.kinds(world.step()) == [
        RecordKind.ENCODER_OUTPUT, RecordKind.TEXT_KV, RecordKind.MEDIA_KV,
    ]  # fmt: skip


def test_without_free_slots_the_rest_follows_later_and_what_never_could_is_counted(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING, num_write=2)
    new = request("r", 21, 3)
    world.sched.add(new)
    [first] = world.step()
    assert len(first.keys_by_slot) == 2
    assert world.step() == []
    world.slots.give_back(first.keys_by_slot)
    [second] = world.step()
    chain = [new.chain.content(i, new.token_ids).key for i in range(5)]
    assert world.keys([first, second]) == chain[:4]
    assert world.link.counters.skipped_blocks == 1


def test_an_entry_goes_whole_or_not(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING, num_write=2)
    world.sched.add(request("r", 11, 1, ((0, 9, 1),)))  # 3 blocks of encoder output
    assert RecordKind.ENCODER_OUTPUT not in world.kinds(world.step())
    assert world.link.counters.skipped_blocks == 3


def test_a_step_writes_its_share_and_no_more(tmp_path: Path):
    two = OfferPolicy(long_chain_tokens=1, bytes_per_second=1e18, max_step_bytes=2 * 128)
    world = Writer(tmp_path, two)
    world.sched.add(request("r", 21, 3))
    assert [len(world.keys(world.step())) for _ in range(3)] == [2, 2, 1]


def test_what_the_tiers_brought_is_not_offered_to_them(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING)
    new = request("r", 14, 1, ((1, 6, 1),))
    world.restore(new, lambda _: honest)
    world.sched.add(new)
    assert world.step() == []


def test_what_was_not_kept_is_offered_when_it_is_used_again(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING)
    world.sched.add(request("a", 9, 1))
    keys = world.keys(world.step())
    world.exchange.not_kept(keys[1])
    world.sched.add(request("b", 9, 1))
    assert world.keys(world.step()) == keys[1:]


def test_another_connection_is_offered_again_what_is_used_again(tmp_path: Path):
    """A service that starts anew may have lost what it had."""
    world = Writer(tmp_path, EVERYTHING)
    world.sched.add(request("a", 9, 1))
    keys = world.keys(world.step())
    world.slots = staging(tmp_path / "write", 0, 64)
    world.link.staging = world.slots
    world.sched.add(request("b", 9, 1))
    assert world.keys(world.step()) == keys


def test_nothing_is_remembered_of_requests_that_ended(tmp_path: Path):
    world = Writer(tmp_path, EVERYTHING)
    for name in "abc":
        world.sched.add(request(name, 9, 2, first=ord(name)))
    while world.sched.has_requests:
        world.step()
    assert not world.exchange._offering._progress


@pytest.mark.parametrize("num_known", [3])
def test_what_is_remembered_is_bounded(
    num_known: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("chiasm_worker.tiers.offering._MAX_KNOWN", num_known)
    world = Writer(tmp_path, EVERYTHING)
    world.sched.add(request("r", 29, 1))
    keys = world.keys(world.step())
    assert list(world.exchange._offering._known) == keys[-num_known:]
