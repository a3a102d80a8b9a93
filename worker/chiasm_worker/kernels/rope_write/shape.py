"""How a kernel lays out heads of a size, and which row of the launch table that takes.

Must not know: Triton.
"""

from __future__ import annotations


def half_of(head_dim: int) -> int:
    """Lanes for each half of a head: a power of two."""
    return 1 << (head_dim // 2 - 1).bit_length()


def variant(head_dim: int) -> str:
    """The launch table's row for heads of that size."""
    half = half_of(head_dim)
    if half <= 32:
        return "narrow"
    return "default" if 2 * half == head_dim else "padded"
