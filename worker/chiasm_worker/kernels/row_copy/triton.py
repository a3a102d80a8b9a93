"""Rows of bytes moved by a table, 16 bytes a load; see README.md."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chiasm_worker.kernels.launch import architecture, configuration


@triton.jit
def row_copy_kernel(
    source,
    source_rows,
    target,
    target_rows,
    num_words,
    source_stride,
    target_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    take = tl.load(source_rows + row).to(tl.int64)
    put = tl.load(target_rows + row).to(tl.int64)
    if (take < 0) | (put < 0):
        return
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = word < num_words
    words = tl.load(source + take * source_stride + word, mask=inside, other=0)
    tl.store(target + put * target_stride + word, words, mask=inside)


def row_copy(
    source: torch.Tensor, source_rows: torch.Tensor, target: torch.Tensor, target_rows: torch.Tensor
) -> torch.Tensor:
    """target[target_rows[i]] = source[source_rows[i]], in place; see reference.py."""
    num_bytes = source.shape[1]
    if num_bytes % 64 or source.stride(0) % 64 or target.stride(0) % 64:
        raise ValueError(
            f"Rows of {num_bytes} bytes, {source.stride(0)} and {target.stride(0)} apart: all must "
            "be multiples of 64."
        )
    if len(source_rows):
        config = configuration("row_copy", "default", architecture(source.device))
        # Words of 4 bytes, 16 of them at least: Triton then knows that four are one load.
        from_words, to_words = source.view(torch.int32), target.view(torch.int32)
        grid = (len(source_rows), triton.cdiv(num_bytes // 4, config["BLOCK"]))
        row_copy_kernel[grid](
            from_words, source_rows, to_words, target_rows, num_bytes // 4,
            from_words.stride(0), to_words.stride(0), **config,
        )  # fmt: skip
    return target
