"""Packed weights hold what compressed-tensors' files hold, and what they do not is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chiasm_worker.kernels.quantised_linear.packed import (
    PackedWeight,
    Scheme,
    concatenate,
    dequantise,
    repack,
    unpack,
)
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

PACK, INT = "pack-quantized", "int-quantized"
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Drawn:
    """A weight and how it is to be quantised."""

    num_outputs: int
    size: int
    scheme: Scheme
    seed: int
    dtype: torch.dtype = torch.bfloat16


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Any shape: outputs are few and odd, inputs whole groups where there are groups."""
    form = draw(st.sampled_from([PACK, PACK, INT]))
    bits = 8 if form == INT else draw(st.sampled_from([4, 8]))
    group = draw(st.sampled_from([0, 32, 64, 128]))
    size = group * draw(st.integers(1, 5)) if group else draw(st.integers(1, 300))
    scheme = Scheme(form, bits, group, draw(st.booleans()))
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float16]))
    return Drawn(draw(st.integers(1, 40)), size, scheme, draw(st.integers(0, 2**31)), dtype)


def theirs(scheme: Scheme) -> tuple[Any, QuantizationScheme]:
    """compressed-tensors' own compressor and its words for a scheme."""
    grouped: dict[str, Any] = {"strategy": "group", "group_size": scheme.group}
    args = QuantizationArgs(
        num_bits=scheme.bits,
        symmetric=scheme.symmetric,
        **(grouped if scheme.group else {"strategy": "channel"}),
    )
    described = QuantizationScheme(targets=["Linear"], weights=args)
    return BaseCompressor.get_value_from_registry(scheme.form), described


def compressed(what: Drawn) -> Tensors:
    """A layer as compressed-tensors writes it."""
    random = torch.Generator().manual_seed(what.seed)
    scheme, shape = what.scheme, (what.num_outputs, what.size)
    groups = (what.num_outputs, what.size // scheme.group if scheme.group else 1)
    half = 1 << (scheme.bits - 1)
    state = {
        "weight": torch.randn(shape, generator=random).to(what.dtype),
        "weight_scale": ((torch.rand(groups, generator=random) + 0.1) / half).to(what.dtype),
        "weight_zero_point": torch.randint(-half, half, groups, generator=random, dtype=torch.int8),
    }
    if scheme.symmetric:
        state["weight_zero_point"].zero_()
    compressor, described = theirs(scheme)
    written: Tensors = compressor.compress(state, described)
    return written


def read_again(written: Tensors, what: Drawn) -> torch.Tensor:
    """What compressed-tensors reads of what it wrote, in the type of the scales."""
    compressor, described = theirs(what.scheme)
    weight: torch.Tensor = compressor.decompress({**written}, described)["weight"]
    return weight.to(what.dtype)


@settings(deadline=None, max_examples=60)
@given(drawn())
def test_a_layer_is_what_compressed_tensors_reads_of_it(what: Drawn) -> None:
    # It cannot read zero points that fill no more than one word (0.20).
    assume(what.num_outputs > 8)
    written = compressed(what)
    packed = repack("layer", written, what.scheme)
    assert packed.num_outputs == what.num_outputs
    # Each number is one product, rounded once.
    assert torch.equal(dequantise(packed).to(what.dtype), read_again(written, what))


@settings(deadline=None, max_examples=60)
@given(drawn())
def test_numbers_are_exactly_those_of_the_formula(what: Drawn) -> None:
    written = compressed(what)
    packed = repack("layer", written, what.scheme)
    codes, zeros = plain_codes(written, what), plain_zeros(written, what)
    assert torch.equal(unpack(packed).int(), codes)
    group = torch.arange(what.size) // (what.scheme.group or what.size)
    scales = written["weight_scale"].float()
    assert torch.equal(dequantise(packed), (codes - zeros[:, group]).float() * scales[:, group])


def plain_codes(written: Tensors, what: Drawn) -> torch.Tensor:
    """Codes [N, K], one by one."""
    if what.scheme.form == INT:
        return written["weight"].int()
    return bit_by_bit(written["weight_packed"], what.scheme.bits, what.size)


def plain_zeros(written: Tensors, what: Drawn) -> torch.Tensor:
    """Zero points [N, groups]."""
    if what.scheme.symmetric:
        return torch.zeros(written["weight_scale"].shape, dtype=torch.int32)
    if what.scheme.form == INT:
        return written["weight_zero_point"].int()
    return bit_by_bit(written["weight_zero_point"].T, what.scheme.bits, what.num_outputs).T


def bit_by_bit(words: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """The first `count` codes of each row of int32 words, the lowest bits first."""
    rows = []
    for row in words.tolist():
        number = sum((word % 2**32) << (32 * i) for i, word in enumerate(row))
        rows.append([(number >> (bits * i)) % 2**bits - 2 ** (bits - 1) for i in range(count)])
    return torch.tensor(rows, dtype=torch.int32)


GROUPED = Drawn(40, 256, Scheme(PACK, 4, 128, False), 1)


def packed_of(what: Drawn) -> PackedWeight:
    return repack("layer", compressed(what), what.scheme)


def test_through_a_file(tmp_path: Path) -> None:
    written = compressed(GROUPED)
    plain = dequantise(repack("layer", written, GROUPED.scheme))
    save_file({f"layer.{name}": tensor for name, tensor in written.items()}, tmp_path / "m")
    loaded = {n.removeprefix("layer."): t for n, t in load_file(tmp_path / "m").items()}
    assert torch.equal(dequantise(repack("layer", loaded, GROUPED.scheme)), plain)


def test_weights_side_by_side_are_one() -> None:
    parts = [packed_of(replace(GROUPED, num_outputs=n, seed=n)) for n in (7, 40, 1)]
    whole = concatenate(parts)
    assert torch.equal(dequantise(whole), torch.cat([dequantise(part) for part in parts]))
    other = packed_of(replace(GROUPED, scheme=Scheme(PACK, 4, 64, False)))
    with pytest.raises(ValueError, match="different ways cannot be one"):
        concatenate([*parts, other])


def test_what_it_takes() -> None:
    # 4 bits a weight and 4 bytes a scale.
    assert packed_of(GROUPED).num_bytes == 40 * 256 // 2 + 40 * 2 * 4


def test_an_order_of_activations_is_refused_unless_it_is_none() -> None:
    written = compressed(GROUPED)
    plain = torch.arange(256, dtype=torch.int32) // 128
    for harmless in (plain, torch.full((256,), -1, dtype=torch.int32)):
        repack("layer", {**written, "weight_g_idx": harmless}, GROUPED.scheme)
    with pytest.raises(ValueError, match="orders inputs by their activations"):
        repack("layer", {**written, "weight_g_idx": plain.flip(0)}, GROUPED.scheme)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("weight_scale"), "layer lacks weight_scale; the file holds"),
        (lambda t: t.pop("weight_zero_point"), "layer lacks weight_zero_point"),
        (
            lambda t: t.update(weight_packed=t["weight_packed"][:, :-1]),
            r"layer.weight_packed is \(40, 31\); it must be \(40, 32\)",
        ),
        (
            lambda t: t.update(weight_scale=t["weight_scale"][:, :1]),
            r"layer.weight_scale is \(40, 1\); it must be \(40, 2\)",
        ),
        (
            lambda t: t.update(weight_packed=t["weight_packed"].long()),
            "layer.weight_packed is torch.int64; torch.int32 can be read",
        ),
        (
            lambda t: t.update(weight_shape=torch.tensor([40, 200])),
            r"layer.weight_packed is \(40, 32\); it must be \(40, 25\)",
        ),
        (
            lambda t: t.update(weight_scale=t["weight_scale"].float() + 1e-5),
            "layer: scales beside zero points have more digits",
        ),
        (lambda t: t["weight_scale"][3, 1:].fill_(torch.nan), "layer.weight_scale holds NaN"),
        (lambda t: t["weight_scale"][3, 1:].fill_(-torch.inf), "layer.weight_scale holds NaN or"),
    ],
)
def test_what_a_file_lacks_or_has_otherwise_is_named(
    change: Callable[[Tensors], object], said: str
) -> None:
    written = compressed(GROUPED)
    change(written)
    with pytest.raises(ValueError, match=said):
        repack("layer", written, GROUPED.scheme)


@pytest.mark.parametrize("form", [PACK, INT])
@pytest.mark.parametrize("packed", [False, True])
def test_zero_points_of_symmetric_weights_are_zeros(form: str, packed: bool) -> None:
    what = replace(GROUPED, num_outputs=37, scheme=Scheme(form, 8, 128, True))
    written = compressed(what)
    plain = dequantise(repack("layer", written, what.scheme))
    zeros = torch.zeros((37, 2), dtype=torch.int8)

    def held() -> torch.Tensor:
        return pack_to_int32(zeros, 8, packed_dim=0) if packed and form == PACK else zeros

    again = repack("layer", {**written, "weight_zero_point": held()}, what.scheme)
    assert torch.equal(dequantise(again), plain)
    zeros[36, 1] = -3
    with pytest.raises(ValueError, match=r"layer\.weight_zero_point is not 0 .* are symmetric"):
        repack("layer", {**written, "weight_zero_point": held()}, what.scheme)


def test_groups_that_do_not_divide_the_inputs_are_refused() -> None:
    written = compressed(replace(GROUPED, size=200, scheme=Scheme(PACK, 8, 0, True)))
    with pytest.raises(ValueError, match="layer has 200 inputs, which groups of 64"):
        repack("layer", written, Scheme(PACK, 8, 64, True))


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (("float-quantized", 8, 0, True), "in the form 'float-quantized' cannot be read"),
        ((PACK, 3, 0, True), "Weights of 3 bits"),
        ((INT, 4, 0, True), "Weights of 4 bits in the form 'int-quantized'"),
        ((PACK, 4, 16, True), "Groups of 16 inputs"),
    ],
)
def test_what_cannot_be_read_is_said(scheme: tuple[str, int, int, bool], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scheme(*scheme)
