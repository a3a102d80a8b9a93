"""What is read from binaries, and the gates: on written-out listings, without a compiler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chiasm_proofs.compiler.gates import failures
from chiasm_proofs.compiler.issue import Issue, hot_loop, issue
from chiasm_proofs.compiler.resources import Instruction, Resources, load_bits, occupancy
from chiasm_proofs.compiler.targets import TARGETS
from chiasm_worker.kernels.case import Build, Limits

SM_90, GFX942 = TARGETS["sm_90"], TARGETS["gfx942"]
TAKEN = Resources(
    registers=80, spills=0, shared_bytes=38916, num_warps=4, occupancy=0.3, load_bits=128,
    matrix_ops={"HMMA": 32}, slow_conversions=0, instructions=900,
)  # fmt: skip
BUILD = Build("b", "k", {}, {}, ("norm", "w2048"), limits=Limits(tensor_core=True))


def listing(*names: str) -> list[Instruction]:
    return [
        Instruction(16 * i, *(name.split(" ", 1) if " " in name else (name, "")))
        for i, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "expected"),
    [(32, 0, 4, 1.0), (128, 0, 8, 0.25), (80, 38916, 4, 0.312), (255, 0, 32, 0.0)],
)
def test_occupancy(registers: int, shared: int, warps: int, expected: float) -> None:
    assert occupancy(registers, shared, warps, SM_90) == expected


def test_the_widest_load_counts_and_tma_is_wide() -> None:
    assert load_bits(listing("LDG.E.U16 R1", "LDG.E.64.CONSTANT R2", "STG.E.128 R3")) == 64
    assert load_bits(listing("LDGSTS.E.BYPASS.LTC128B.128 [R1]")) == 128
    assert load_bits(listing("LDG.E R1")) == 32
    assert load_bits(listing("UTMALDG.2D [UR1]")) == 128
    assert load_bits(listing("IADD R1")) == 0


def test_the_hot_loop_is_the_innermost_that_multiplies_matrices() -> None:
    code = listing(
        "IADD", "LDG.E.128", "HMMA.16816", "MUFU.EX2", "BRA 0x20", "IADD", "BRA 0x0", "BRA 0x70"
    )
    assert [i.name for i in hot_loop(code)] == ["HMMA.16816", "MUFU.EX2", "BRA"]
    assert hot_loop(listing("IADD", "BRA 0x0")) == []


def test_issue_counts_slow_instructions_by_their_rate() -> None:
    fast = issue(listing("HMMA", *["IADD"] * 30, "BRA 0x0"), 4, 1024, SM_90)
    slow = issue(listing("HMMA", *["F2F.BF16.F16"] * 30, "BRA 0x0"), 8, 1024, SM_90)
    assert fast is not None
    assert slow is not None
    assert (fast.instructions, fast.issue_clocks) == (32, 32)
    assert (slow.slow_instructions, slow.issue_clocks) == (30, 480)
    assert fast.memory_clocks == pytest.approx(1024 / SM_90.bytes_per_clock)
    assert issue(listing("IADD"), 4, 1024, SM_90) is None
    assert issue(listing("HMMA", "BRA 0x0"), 4, 1024, TARGETS["sm_100"]) is None


def test_each_gate_says_what_it_refuses() -> None:
    def said(build: Build = BUILD, loop: Issue | None = None, **other: object) -> str:
        return " ".join(failures(build, SM_90, replace(TAKEN, **other), loop))  # type: ignore[arg-type]

    assert said() == ""
    assert "2 spills" in said(spills=2)
    assert "bytes of shared memory" in said(shared_bytes=SM_90.block_shared_bytes + 1)
    assert "not one block" in said(occupancy=0.0)
    assert "loads are 32 bits wide" in said(load_bits=32)
    assert "no matrix instruction" in said(matrix_ops={})
    hot = replace(BUILD, limits=Limits(max_issue_ratio=0.6, tile_bytes=1))
    assert "no hot loop" in said(hot)
    assert "ratio is 0.7" in said(hot, Issue(7, 0, 7, 10))
    assert said(hot, Issue(6, 0, 6, 10)) == ""


def test_an_issue_ratio_is_asked_for_only_where_memory_is_known() -> None:
    hot = replace(BUILD, limits=Limits(max_issue_ratio=0.6, tile_bytes=1))
    assert failures(hot, GFX942, TAKEN, None) == []
