"""Weights of 4 or 8 bits as the kernel reads them, and how they are made from checkpoints' files.

A weight is `(code - zero) * scale`: code and zero are signed, zero and scale are its output's and
its group of inputs'. Codes are in two's complement, and lie so that a word's two halves are two
neighbouring inputs once they are shifted and masked: two numbers of 16 bits in one register.

    [tile, plane, output, word]          a tile is 128 inputs, cut into quarters of 32
      word w of 0..15, 4 bits:  bit 31                                          0
                                | q3 | q2 | q1 | q0 || q3 | q2 | q1 | q0 |
                                '---- input 2w+1 ---''---- input 2w -----'
      8 bits:                   |    q1   |    q0   ||    q1   |    q0   |     plane 0
                                |    q3   |    q2   ||    q3   |    q2   |     plane 1
      qi: of quarter i

What one program reads of a tile is one stretch of memory (outputs x 64 bytes a plane); inputs are
filled up to whole tiles, with code 0 and scale 0. Scales are [group, output] in fp32 and hold the
zero's code in their last 8 bits, which scales that were bf16 or fp16 do not use:

    | sign | exponent | 15 bits of fraction | zero |

Must not know: Triton, configurations. Raises ValueError that names the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

TILE = 128
QUARTER = 32
WORDS = 16
BITS = (4, 8)
# Smaller ones would take more scales than products, and there are no other in the files.
GROUPS = (32, 64, 128)
FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Scheme:
    """How a layer's weight was quantised.

    Attributes:
        form: "pack-quantized" (codes in int32) or "int-quantized" (int8), as in the files.
        group: inputs that share a scale, one of GROUPS; 0: all of an output's.
    """

    form: str
    bits: int
    group: int
    symmetric: bool

    def __post_init__(self) -> None:
        if self.form not in ("pack-quantized", "int-quantized"):
            raise ValueError(
                f"Weights in the form {self.form!r} cannot be read; 'pack-quantized' and "
                "'int-quantized' can."
            )
        if self.bits not in BITS or (self.form == "int-quantized" and self.bits != 8):
            raise ValueError(
                f"Weights of {self.bits} bits in the form {self.form!r} cannot be read; 4 and 8 "
                "bits of 'pack-quantized' and 8 of 'int-quantized' can."
            )
        if self.group not in (0, *GROUPS):
            raise ValueError(
                f"Groups of {self.group} inputs that share a scale cannot be computed; {GROUPS} "
                "can, and one scale for an output."
            )


@dataclass(frozen=True)
class PackedWeight:
    """A weight [num_outputs, size] as the kernel reads it.

    Attributes:
        words: [num_tiles, bits / 4, num_outputs, 16] int32; drawn above.
        scales: [num_groups, num_outputs] fp32; with zeros in their last 8 bits if `has_zeros`.
        group: inputs that share a scale; 0: all.
        size: inputs.
    """

    words: torch.Tensor
    scales: torch.Tensor
    has_zeros: bool
    bits: int
    group: int
    size: int

    @property
    def num_outputs(self) -> int:
        """Rows of the weight."""
        return self.words.shape[2]

    @property
    def num_bytes(self) -> int:
        """What it takes, and what a product reads of it at least."""
        return self.words.nbytes + self.scales.nbytes

    def to(self, device: torch.device) -> PackedWeight:
        """The same on a device."""
        return replace(self, words=self.words.to(device), scales=self.scales.to(device))


def pack(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, bits: int, group: int
) -> PackedWeight:
    """A weight as the kernel reads it.

    Args:
        codes: [num_outputs, size] int8, within the range of `bits`.
        scales: [num_outputs, num_groups]; zeros likewise, int8.

    Raises: ValueError for scales that leave no room for zeros.
    """
    num_outputs, size = codes.shape
    num_tiles, planes, pieces = -(-size // TILE), bits // 4, 16 // bits
    padded = torch.zeros((num_outputs, num_tiles * TILE), dtype=torch.int8, device=codes.device)
    padded[:, :size] = codes
    parts = padded.view(num_outputs, num_tiles, planes, pieces, WORDS, 2)
    words = torch.zeros(
        (num_tiles, planes, num_outputs, WORDS), dtype=torch.int32, device=codes.device
    )
    for piece in range(pieces):
        for half in range(2):
            code = parts[..., piece, :, half].permute(1, 2, 0, 3).to(torch.int32)
            words |= (code & ((1 << bits) - 1)) << (16 * half + bits * piece)
    num_groups = -(-num_tiles * TILE // group) if group else 1
    factors = torch.zeros((num_groups, num_outputs), dtype=torch.float32, device=codes.device)
    factors[: scales.shape[1]] = scales.T
    if zeros is not None:
        factors[: scales.shape[1]] = _with_zeros(factors[: scales.shape[1]], zeros.T)
    return PackedWeight(words, factors, zeros is not None, bits, group, size)


def _with_zeros(scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """Zeros int8 in the last 8 bits of fp32 scales of the same shape."""
    bits = scales.view(torch.int32)
    if bool((bits & 0xFF).any()):
        raise ValueError(
            "scales beside zero points have more digits than 16 bits of fp32; scales that were "
            "bf16 or fp16 can be read."
        )
    return (bits | (zeros.to(torch.int32) & 0xFF)).view(torch.float32)


def unpack(weight: PackedWeight) -> torch.Tensor:
    """The codes [num_outputs, size] int8 of a weight."""
    num_tiles, planes, num_outputs, _ = weight.words.shape
    bits, pieces = weight.bits, 16 // weight.bits
    parts = torch.empty(
        (num_outputs, num_tiles, planes, pieces, WORDS, 2),
        dtype=torch.int8,
        device=weight.words.device,
    )
    for piece in range(pieces):
        for half in range(2):
            # To the top and back, which brings the sign along.
            top = weight.words << (32 - bits - 16 * half - bits * piece)
            parts[..., piece, :, half] = (top >> (32 - bits)).to(torch.int8).permute(2, 0, 1, 3)
    return parts.view(num_outputs, num_tiles * TILE)[:, : weight.size]


def dequantise(weight: PackedWeight) -> torch.Tensor:
    """The weight [num_outputs, size] in fp32: each number rounded once, where scales need it."""
    codes = unpack(weight).float()
    repeats = weight.group or weight.size
    scales = weight.scales.T
    if weight.has_zeros:
        bits = scales.contiguous().view(torch.int32)
        codes -= bits.to(torch.int8).float().repeat_interleave(repeats, dim=1)[:, : weight.size]
        scales = (bits & -256).view(torch.float32)
    return codes * scales.repeat_interleave(repeats, dim=1)[:, : weight.size]


def concatenate(parts: Sequence[PackedWeight]) -> PackedWeight:
    """One weight whose outputs are those of the parts.

    Raises: ValueError when they are packed in different ways.
    """
    first = parts[0]
    ways = {(p.bits, p.group, p.size, p.has_zeros) for p in parts}
    if len(ways) > 1:
        raise ValueError(
            f"Weights that are packed in different ways cannot be one: {sorted(ways)} (bits, "
            "group, inputs, whether there are zero points)."
        )
    return replace(
        first,
        words=torch.cat([part.words for part in parts], dim=2),
        scales=torch.cat([part.scales for part in parts], dim=1),
    )


def repack(name: str, tensors: Mapping[str, torch.Tensor], scheme: Scheme) -> PackedWeight:
    """The weight of the layer `name`, from what a compressed-tensors file holds of it.

    Args:
        tensors: by their names in the layer:
            weight_packed  [N, ceil(K * bits / 32)] int32, the first code in the lowest bits, each
                           2^(bits-1) above its value (form "pack-quantized")
            weight_shape   [2], N and K (likewise)
            weight         [N, K] int8 (form "int-quantized")
            weight_scale   [N, K / group], or [N, 1]
            weight_zero_point  [ceil(N * bits / 32), groups] int32, packed along N, or (form
                           "int-quantized") [N, groups] int8; where symmetric there may be one
                           in any form, of zeros only
            weight_g_idx   [K]: the group of each input, if not simply the next one

    Raises: ValueError for what is missing, has another shape or an order of its own, scales that
    are no numbers, and zero points of what should have none.
    """
    codes = _codes(name, tensors, scheme)
    num_outputs, size = codes.shape
    if scheme.group and size % scheme.group:
        raise ValueError(
            f"{name} has {size} inputs, which groups of {scheme.group} do not divide; its scales "
            "cannot be told apart."
        )
    num_groups = size // scheme.group if scheme.group else 1
    scales = _tensor(name, tensors, "weight_scale", (num_outputs, num_groups), FLOATS)
    if not bool(scales.isfinite().all()):
        raise ValueError(f"{name}.weight_scale holds NaN or infinity; scales must be finite.")
    if scheme.symmetric:
        _check_symmetric(name, tensors, scheme, (num_outputs, num_groups))
        zeros = None
    else:
        zeros = _zeros(name, tensors, scheme, (num_outputs, num_groups))
    _check_order(name, tensors, scheme, size)
    try:
        return pack(codes, scales, zeros, scheme.bits, scheme.group)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _tensor(
    name: str,
    tensors: Mapping[str, torch.Tensor],
    part: str,
    shape: tuple[int, ...] | None,
    dtypes: Sequence[torch.dtype],
) -> torch.Tensor:
    """One of a layer's tensors, looked at."""
    if part not in tensors:
        raise ValueError(f"{name} lacks {part}; the file holds {sorted(tensors)} of it.")
    tensor = tensors[part]
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{name}.{part} is {tensor.dtype}; {allowed} can be read.")
    if shape is not None and tuple(tensor.shape) != shape:
        raise ValueError(f"{name}.{part} is {tuple(tensor.shape)}; it must be {shape}.")
    return tensor


def _codes(name: str, tensors: Mapping[str, torch.Tensor], scheme: Scheme) -> torch.Tensor:
    """Signed codes [N, K] int8."""
    if scheme.form == "int-quantized":
        weight = _tensor(name, tensors, "weight", None, (torch.int8,))
        if weight.dim() != 2:
            raise ValueError(f"{name}.weight is {tuple(weight.shape)}; it must have two axes.")
        return weight
    integers = (torch.int64, torch.int32)
    shape = _tensor(name, tensors, "weight_shape", (2,), integers).tolist()
    num_outputs, size = int(shape[0]), int(shape[1])
    wide = (num_outputs, -(-size * scheme.bits // 32))
    words = _tensor(name, tensors, "weight_packed", wide, (torch.int32,))
    return _unpacked(words, scheme.bits)[:, :size]


def _unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Signed codes [rows, words * 32 / bits] int8 of a file's words [rows, words] int32."""
    steps = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    above = (words[..., None] >> steps) & ((1 << bits) - 1)
    return (above - (1 << (bits - 1))).to(torch.int8).flatten(1)


def _zeros(
    name: str, tensors: Mapping[str, torch.Tensor], scheme: Scheme, shape: tuple[int, int]
) -> torch.Tensor:
    """Zero points [N, groups] int8."""
    part = "weight_zero_point"
    if scheme.form == "int-quantized":
        return _tensor(name, tensors, part, shape, (torch.int8,))
    packed = (-(-shape[0] * scheme.bits // 32), shape[1])
    words = _tensor(name, tensors, part, packed, (torch.int32,))
    return _unpacked(words.T, scheme.bits)[:, : shape[0]].T


def _check_symmetric(
    name: str, tensors: Mapping[str, torch.Tensor], scheme: Scheme, shape: tuple[int, int]
) -> None:
    """Refuse a symmetric weight with zero points; a file may say that all of them are 0."""
    if "weight_zero_point" not in tensors:
        return
    zeros = tensors["weight_zero_point"]
    # The library packs those of symmetric weights or does not, by its version.
    packed = (-(-shape[0] * scheme.bits // 32), shape[1])
    if scheme.form == "pack-quantized" and (zeros.dtype, zeros.shape) == (torch.int32, packed):
        zeros = _zeros(name, tensors, scheme, shape)
    if bool((zeros != 0).any()):
        raise ValueError(
            f"{name}.weight_zero_point is not 0 throughout, and config.json says that the weights "
            "are symmetric; the checkpoint contradicts itself. Write it again."
        )


def _check_order(name: str, tensors: Mapping[str, torch.Tensor], scheme: Scheme, size: int) -> None:
    """Refuse inputs that are in the order of their activations."""
    if "weight_g_idx" not in tensors:
        return
    order = _tensor(name, tensors, "weight_g_idx", (size,), (torch.int32, torch.int64)).cpu()
    # A file that was written without an order has -1 throughout.
    plain = torch.arange(size) // (scheme.group or size)
    if not (torch.equal(order.long(), plain) or bool((order == -1).all())):
        raise ValueError(
            f"{name}.weight_g_idx orders inputs by their activations, which is not computed here; "
            "quantise the model without activation ordering (actorder null or 'weight')."
        )
