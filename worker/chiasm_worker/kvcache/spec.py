"""What one cache block is, in bytes.

A block is one contiguous record, the same bytes wherever it lives:

    | header | payload                                          | trailer |
    |  128 B | layer 0: K K K .. V V V .. | layer 1: ..  | pad  |   64 B  |

K and V of one layer are each ``[block_size, num_kv_heads, head_dim]``. Header and trailer (the
contract's block_record.py) stay zero in the arena: they are written around a payload where it
leaves. Every part starts on a 64-byte border; what no vector fills is zero in every copy that
leaves, so that equal contents have equal bytes.

A block may instead hold an encoder's output, or K and V of a media item for the cross-attention
layers, laid out like the above with its own number of layers and of vectors in the place of tokens.

Must not know: torch, devices, requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.block_record import align_up, record_bytes
from chiasm_contract.config import EngineLimits


@dataclass(frozen=True)
class KVCacheSpec:
    """Shape of the K and V that one block holds for all layers of a decoder."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype_bytes: int

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_kv_heads", "head_dim", "block_size", "dtype_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V in one block: 2 layers x 16 tokens x 2 heads x 8 x fp32 = 4096."""
        elements = self.num_layers * 2 * self.block_size * self.num_kv_heads * self.head_dim
        return elements * self.dtype_bytes

    @property
    def payload_bytes(self) -> int:
        """Bytes between header and trailer, padded to the alignment."""
        return align_up(self.kv_bytes)

    @property
    def record_bytes(self) -> int:
        """Bytes of a whole record."""
        return record_bytes(self.payload_bytes)

    def num_blocks(self, budget_bytes: int) -> int:
        """How many records fit in a byte budget."""
        num_blocks = budget_bytes // self.record_bytes
        if num_blocks < 1:
            raise ValueError(
                f"A cache budget of {budget_bytes} bytes holds no block of {self.record_bytes} "
                "bytes; raise the budget or lower the block size."
            )
        return num_blocks

    def cross_vectors(self, num_layers: int) -> int:
        """Vectors of a media item whose K and V for so many cross-attention layers fit a block.

        Raises: ValueError when not even one does.
        """
        vector_bytes = num_layers * 2 * self.num_kv_heads * self.head_dim * self.dtype_bytes
        count = self.payload_bytes // vector_bytes
        if count < 1:
            raise ValueError(
                f"K and V of one vector for {num_layers} cross-attention layers have "
                f"{vector_bytes} bytes, a block only {self.payload_bytes}; raise block_size "
                f"({self.block_size})."
            )
        return count

    def blocks_for_bytes(self, num_bytes: int) -> int:
        """Blocks whose payloads hold so many bytes of encoder output."""
        return -(-num_bytes // self.payload_bytes)


def check_limits(limits: EngineLimits, spec: KVCacheSpec, num_blocks: int) -> None:
    """Raise ValueError if the budgets promise what the pool cannot hold."""
    if limits.max_model_len > num_blocks * spec.block_size:
        raise ValueError(
            f"kv_cache_bytes {limits.kv_cache_bytes} holds {num_blocks * spec.block_size} tokens, "
            f"less than max_model_len {limits.max_model_len}. Raise the one or lower the other."
        )
