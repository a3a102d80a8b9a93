"""What prefill attention is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from chiasm_worker.kernels.case import Build, Case, Draw, Inputs, Limits, Outputs
from chiasm_worker.kernels.codes import form_of
from chiasm_worker.kernels.paged_decode.cases import (
    CODED_TOLERANCE,
    FLOAT_TOLERANCES,
    Layout,
    attention_types,
    draw_cache,
)
from chiasm_worker.kernels.paged_prefill.plan import NewTokens, Plan, Rule, plan
from chiasm_worker.kernels.paged_prefill.shape import tile_shape
from chiasm_worker.kernels.work import Work


def _planned(random: Draw, made: Plan) -> Inputs:
    held = random.memory.holding
    return {
        "tiles": held(torch.from_numpy(made.tiles)),
        "row_low": held(torch.from_numpy(made.row_low)),
        "row_high": held(torch.from_numpy(made.row_high)),
    }


def _draw(
    layout: Layout,
    spans: Sequence[Sequence[tuple[int, int]]],
    dtype: torch.dtype,
    rule: Rule,
    soft_cap: float,
) -> Callable[[Draw], Inputs]:
    new = [
        NewTokens(length - count, count, own)
        for (length, count), own in zip(layout.sequences, spans, strict=True)
    ]  # fmt: skip
    group = layout.num_heads // layout.num_kv_heads

    def draw(random: Draw) -> Inputs:
        cached, _ = draw_cache(random, layout)
        shape = tile_shape(layout.cache, layout.head_dim, group, random.memory.device)
        q = random.normal(sum(t.num_new for t in new), layout.num_heads, layout.head_dim)
        return {
            **cached,
            **_planned(random, plan(new, rule, *shape)),
            "shape": shape,
            "q": random.memory.holding(q.to(dtype), hole=layout.head_dim),
            "scale": layout.head_dim**-0.5,
            "soft_cap": soft_cap,
        }

    return draw


def _alone(inputs: Inputs, row: int) -> tuple[Inputs, Callable[[Outputs], Outputs]]:
    mine = inputs["tiles"][inputs["tiles"][:, 0] == row].clone()
    start = int(mine[:, 1].min()) if len(mine) else 0
    rows = slice(start, start + int(mine[:, 2].sum()))
    mine[:, 0], mine[:, 1] = 0, mine[:, 1] - start
    alone: Inputs = {name: inputs[name][rows] for name in ("q", "row_low", "row_high")}
    alone |= {"tiles": mine, "block_table": inputs["block_table"][row : row + 1]}
    return {**inputs, **alone}, lambda outputs: (outputs[0][rows],)


def _case(
    name: str,
    layout: Layout,
    dtype: torch.dtype,
    *,
    spans: Sequence[Sequence[tuple[int, int]]] | None = None,
    rule: Rule = Rule(),  # noqa: B008 - frozen
    soft_cap: float = 0.0,
    quick: bool = False,
) -> Case:
    own = [()] * len(layout.sequences) if spans is None else spans
    return Case(
        name,
        "paged_prefill",
        _draw(layout, own, dtype, rule, soft_cap),
        FLOAT_TOLERANCES[dtype] if form_of(layout.cache) == "float" else CODED_TOLERANCE,
        lambda inputs: len(inputs["block_table"]),
        _alone,
        quick=quick,
        interpreter_only=dtype == _FP32,
    )


_BF16, _FP16, _FP32 = torch.bfloat16, torch.float16, torch.float32
_U8, _I8 = torch.uint8, torch.int8
# (tokens, new ones): whole prompts, a later chunk, one token, nothing.
_TEXT = ((37, 37), (70, 21), (1, 1), (0, 0), (50, 1))
_IMAGES = ((60, 60), (75, 40), (20, 20))
_SPANS = (((5, 30), (33, 60)), ((40, 70),), ((0, 20),))
_LAYOUT = Layout(_TEXT, 4, 2, 32, 16, _BF16)
_SEEING = replace(_LAYOUT, sequences=_IMAGES)
_BOUND, _PASSING = Rule(9), Rule(9, spans_pass_window=True)
CASES = (
    _case("bf16 causal", _LAYOUT, _BF16, quick=True),
    _case("fp32 spans", replace(_SEEING, cache=_FP32), _FP32, spans=_SPANS, quick=True),
    _case("e4m3 spans, window", replace(_SEEING, cache=_U8), _BF16, spans=_SPANS, rule=_BOUND,
          quick=True),
    _case("fp16 spans pass window", replace(_SEEING, cache=_FP16), _FP16, spans=_SPANS,
          rule=_PASSING),
    _case("bf16 spans, window, cap", _SEEING, _BF16, spans=_SPANS, rule=_BOUND, soft_cap=30.0),
    _case("int8 causal", replace(_LAYOUT, cache=_I8), _BF16),
    _case("bf16, 7 heads share", replace(_LAYOUT, num_heads=7, num_kv_heads=1, head_dim=80), _BF16),
    _case("fp32, blocks of 3", replace(_LAYOUT, block_size=3, cache=_FP32), _FP32, rule=Rule(4)),
    _case("fp32 wide heads, blocks of 64",
          Layout(((30, 30),), 1, 1, 256, 64, _FP32), _FP32),
    _case("beyond 2^31", Layout(((25, 9),), 2, 1, 16, 8, _BF16, far=True), _BF16),
)  # fmt: skip


def _build(
    name: str,
    form: str,
    *,
    group: int = 4,
    block_size: int = 64,
    head_dim: int = 128,
    quick: bool = False,
    **constants: float,
) -> Build:
    types = {
        **attention_types(form), "tiles": "*i32", "row_low": "*i32", "row_high": "*i32",
    }  # fmt: skip
    return Build(
        name,
        "prefill_kernel",
        types,
        {
            "FORM": {"e4m3": 1, "int8": 2}.get(form, 0), "CAP": 0.0, "GROUP": group,
            "BLOCK_SIZE": block_size, "HEAD_DIM": head_dim, "DIM": head_dim, **constants,
        },
        ("paged_prefill", f"{form}{'_wide' if head_dim > 128 else ''}"),
        ["q", "kv", "scales", "out", "block_stride", "q_token", "q_head", "v_offset",
         "token_stride", "head_stride"],
        Limits(tensor_core=form != "float32"),
        quick=quick,
    )  # fmt: skip


BUILDS = (
    _build("bf16", "float16", quick=True),
    _build("bf16, blocks of 16", "float16", block_size=16),
    _build("bf16, one head each", "float16", group=1),
    _build("bf16 cap", "float16", CAP=50.0),
    _build("bf16 wide", "float16", head_dim=256),
    _build("e4m3", "e4m3"),
    _build("e4m3 wide", "e4m3", head_dim=256),
    _build("int8", "int8"),
    _build("int8 wide", "int8", head_dim=256),
)

_PROMPT = Layout(((8192, 8192),), 28, 4, 128, 64, _BF16)
_FEW = Layout(((60, 60),), 4, 2, 32, 16, _BF16)
# A picture of 1,024 tokens after every 1,024 of text.
_PICTURES = (tuple((start, start + 1024) for start in range(1024, 8192, 2048)),)


def _operations(inputs: Inputs, outputs: Outputs) -> int:
    """Products and sums of what is seen: two matrices, two operations each."""
    del outputs
    pairs = (inputs["row_high"] - inputs["row_low"] + 1).sum()
    return int(4 * inputs["q"].shape[1] * inputs["q"].shape[2] * pairs)


def _work(
    name: str,
    layout: Layout = _PROMPT,
    small: Layout = _FEW,
    spans: Sequence[Sequence[tuple[int, int]]] = ((),),
    small_spans: Sequence[Sequence[tuple[int, int]]] = ((),),
    rule: Rule = Rule(),  # noqa: B008 - frozen
    small_rule: Rule = Rule(),  # noqa: B008 - frozen
) -> Work:
    return Work(
        name,
        "paged_prefill",
        _draw(layout, spans, _BF16, rule, 0.0),
        _draw(small, small_spans, _BF16, small_rule, 0.0),
        "matmul",
        _operations,
        0.55,
    )


_CODED = replace(_FEW, cache=_U8)
WORK = (
    # What sparse prompts are compared with.
    _work("8192, all seen", spans=(((0, 8192),),), small_spans=(((0, 60),),)),
    _work("8192, causal"),
    _work("8192, pictures", spans=_PICTURES, small_spans=(((5, 30), (33, 60)),)),
    _work("8192, window of 1024", rule=Rule(1024), small_rule=Rule(9)),
    _work("8192, pictures, window of 1024", spans=_PICTURES, small_spans=(((5, 30), (33, 60)),),
          rule=Rule(1024), small_rule=Rule(9)),
    _work("8192, causal, e4m3", replace(_PROMPT, cache=_U8), _CODED),
    _work("2048 after 30720, causal", replace(_PROMPT, sequences=((32768, 2048),)),
          replace(_FEW, sequences=((60, 21),))),
)  # fmt: skip
