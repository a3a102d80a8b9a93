"""What becomes of foreign, damaged and outdated records: counted, beside the same without a guard.

A real block service (a process, over its Unix socket) keeps records in its memory, on disk and in a
real Valkey, or reads them from the memory of a replica (another process; by NIXL with `--transport
nixl`, where that is installed), and a worker's real client and gate ask for them. Under each key
that is asked for lies something else: the record of an engine, a reader or a prompt that differs in
one thing, a damaged record, or one that is overtaken by a reload, a restart, another writer or
another use of its slot.

Served means that the engine would read other bytes than computing the block anew gives. The same
happens with a service and a gate that take everything: a fault that is not served even then is none
and counts as `without_effect`, not as `injected`. `rows` number the known faults of other systems
that a kind stands for (issue 5).

Whoever may write to a tier and makes a whole record around other vectors is believed
(docs/tiers.md); `believed` counts that apart.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chiasm_contract.tiers import PeerTransport
from faults import replica, sidecar
from faults.blocks import DONORS, Block, wanted
from faults.damage import DAMAGES
from faults.flows import FLOWS
from faults.peers import PEERS
from faults.process import Told
from faults.replica import Replica
from faults.restarts import RESTARTS
from faults.sidecar import ADDRESSES, INCARNATION, OWN_TIERS, TIERS, Sidecar
from faults.stage import Kinds, Stage
from faults.valkey import Shared, shared_valkey
from faults.worker import End, WorkerEnd
from faults.writers import WRITERS
from reporting import publish

T = TypeVar("T", bound=Told)

ARMS = ("guarded", "unguarded")
FORGED = "forged by one who may write"
ALL_FLOWS: Kinds = {**FLOWS, **WRITERS, **RESTARTS, **PEERS}


@dataclass
class Case:
    """One kind of fault in one tier."""

    kind: str
    tier: str
    rows: str
    served: dict[str, list[bool]] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)

    def note(self, arm: str, ends: list[End], right: list[bytes]) -> None:
        """How one arm ended."""
        pairs = list(zip(ends, right, strict=True))
        self.served[arm] = [end.payload not in (None, truth) for end, truth in pairs]
        if arm == "guarded":
            self.ends.update("right" if end.payload == truth else end.words for end, truth in pairs)

    @property
    def num_injected(self) -> int:
        """Faults that bite: those that are served where nobody looks."""
        return sum(self.served["unguarded"])

    @property
    def num_stale(self) -> int:
        return sum(self.served["guarded"])


@asynccontextmanager
async def stages(
    folder: Path, valkey: Shared, transport: PeerTransport
) -> AsyncIterator[list[tuple[str, Stage]]]:
    """Each tier of each arm."""
    made: list[tuple[str, Stage]] = []
    processes: list[Told] = []

    def started(process: T) -> T:
        process.start()
        processes.append(process)
        return process

    try:
        for arm in ARMS:
            (folder / arm).mkdir()
            other = started(Replica(folder / arm, ADDRESSES[arm][1], transport))
            sidecar = started(Sidecar(folder / arm, arm, valkey.port, transport))
            for tier in TIERS:
                end = WorkerEnd(folder / arm / f"{tier}.sock", INCARNATION, arm == "guarded")
                await end.connect()
                there = other if tier == "peer" else None
                made.append((arm, Stage(tier, sidecar, end, valkey, arm, there)))
        yield made
    finally:
        for _, stage in made:
            await stage.end.client.stop()
        for each in processes:
            each.kill()


async def inject(
    stage: Stage, arm: str, case: Case, blocks: list[Block], others: list[Block]
) -> None:
    """Commit one kind of fault, on each of the blocks."""
    right = [block.payload for block in blocks]
    if case.kind in ALL_FLOWS:
        _, flow, to_be = ALL_FLOWS[case.kind]
        ends = await flow(stage, blocks, others)
        right = [to_be(block).payload for block in blocks]
    else:
        await stage.keep(blocks)
        if any(
            end.payload != block.payload
            for end, block in zip(await stage.ask(blocks), blocks, strict=True)
        ):
            raise RuntimeError(f"{stage.tier}: a right record was not given back")
        for block, other in zip(blocks, others, strict=True):
            stage.place(block.key, _in_its_place(case.kind, block, other))
        ends = await stage.ask(blocks)
    case.note(arm, ends, right)


def _in_its_place(kind: str, block: Block, other: Block) -> bytes:
    if kind == FORGED:
        return block.record(payload=other.payload)
    if kind in DONORS:
        return DONORS[kind][1](block).record()
    return DAMAGES[kind][1](block.record(), other.record(generation=2))


def kinds() -> Iterator[tuple[str, str, str]]:
    """Every kind, in each tier in which it can happen, with its rows."""
    tables: list[tuple[Mapping[str, tuple[Any, ...]], Sequence[str]]] = [
        (DONORS, TIERS),
        (DAMAGES, TIERS),
        (FLOWS, OWN_TIERS),
        (WRITERS, OWN_TIERS),
        (RESTARTS, ["valkey"]),
        (PEERS, TIERS[len(OWN_TIERS) :]),
        ({FORGED: ("-",)}, TIERS),
    ]
    for table, tiers in tables:
        yield from ((kind, tier, rows) for kind, (rows, *_) in table.items() for tier in tiers)


async def measure(folder: Path, num_copies: int, only: str, transport: PeerTransport) -> list[Case]:
    """Every kind in its tiers, `num_copies` times."""
    cases = [Case(kind, tier, rows) for kind, tier, rows in kinds() if kind.startswith(only)]
    with shared_valkey() as valkey:
        async with stages(folder, valkey, transport) as made:
            for number, case in enumerate(cases):
                first = number * 2 * num_copies
                numbers = range(first, first + 2 * num_copies)
                blocks = [wanted(each) for each in numbers]
                for arm, stage in made:
                    if stage.tier == case.tier:
                        await inject(stage, arm, case, blocks[:num_copies], blocks[num_copies:])
    return cases


def figures_of(cases: list[Case]) -> dict[str, Any]:
    """Totals, and by kind."""
    by_kind: dict[str, dict[str, Any]] = {}
    believed = sum(case.num_stale for case in cases if case.kind == FORGED)
    cases = [case for case in cases if case.kind != FORGED]
    for case in cases:
        entry = by_kind.setdefault(
            case.kind,
            {
                "rows": case.rows,
                "injected": 0,
                "without_effect": 0,
                "stale_served": 0,
                "ended": Counter(),
            },
        )
        entry["injected"] += case.num_injected
        entry["without_effect"] += len(case.served["unguarded"]) - case.num_injected
        entry["stale_served"] += case.num_stale
        entry["ended"].update(case.ends)
    totals = {
        name: sum(entry[name] for entry in by_kind.values())
        for name in ("injected", "stale_served", "without_effect")
    }
    return {**totals, "believed": believed, "num_kinds": len(by_kind), "kinds": by_kind}


def show(cases: list[Case]) -> None:
    """For a person."""
    print(
        f"{'kind':40}{'tier':8}{'injected':>9}{'stale':>6}{'unguarded':>10}  guarded, it ended as"
    )
    for case in cases:
        ended = ", ".join(f"{count} {words}" for words, count in case.ends.most_common())
        unguarded = sum(case.served["unguarded"])
        print(
            f"{case.kind:40}{case.tier:8}{case.num_injected:>9}{case.num_stale:>6}"
            f"{unguarded:>10}  {ended}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--valkey", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--replica", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="kinds that begin so; publishes nothing")
    parser.add_argument("--transport", choices=("stream", "nixl"), default="stream")
    parser.add_argument("--copies", type=int, default=16, help="of each kind in each tier")
    parser.add_argument(
        "--check", action="store_true", help="publish nothing; exit with 1 if anything was served"
    )
    options = parser.parse_args()
    if options.serve:
        sidecar.run(Path(options.serve), options.arm, options.valkey, options.transport)
        return
    if options.replica:
        place = sidecar.namespace()
        asyncio.run(replica.serve(Path(options.replica), options.address, place, options.transport))
        return
    with tempfile.TemporaryDirectory(prefix="chiasm-bench-") as name:
        cases = asyncio.run(measure(Path(name), options.copies, options.only, options.transport))
    show(cases)
    figures = {
        **figures_of(cases),
        "num_copies": options.copies,
        "num_cases": len(cases),
        "tiers": TIERS,
        "transport": options.transport,
    }
    if options.check or options.only:
        print({name: value for name, value in figures.items() if name != "kinds"})
        sys.exit(figures["stale_served"] > 0)
    publish("guard_faults", figures)


if __name__ == "__main__":
    main()
