"""Blocks that differ in exactly one thing, with the vectors that computing each would give.

The vectors are made from all that a block means, not from the product's own key of it: a key that
forgot a field would find vectors of another meaning, and the comparison would show it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash
from chiasm_contract.block_record import Header, Modality, RecordKind, encode_header, encode_trailer
from chiasm_contract.fingerprint import Identity, Scope, compute_fp, repr_fp, scope_fp
from chiasm_contract.messages import IdentityReport
from chiasm_worker.kvcache.prefix_cache import CacheScope, MediaRun, block_content, root_key
from chiasm_worker.media_identity import Compression, MediaIdentity
from chiasm_worker.tiers.link import Namespace

PAYLOAD_BYTES = 1024  # a multiple of what records are aligned to
BLOCK_SIZE = 16

FIELDS: dict[str, Any] = {
    "compute.weights.language": "a" * 64,
    "compute.weights.vision_encoder": "b" * 64,
    "compute.weights.projector": "c" * 64,
    "compute.model.config": "d" * 64,
    "compute.processor.config": "e" * 64,
    "compute.processor.resize_backend": "pillow 13.0.0",
    "compute.processor.library_version": "transformers 5.24.0",
    "compute.position.type": "mrope",
    "compute.position.theta": 10000.0,
    "compute.position.scaling": "unscaled",
    "compute.position.sections": [2, 3, 3],
    "compute.position.window": 0,
    "compute.compute_dtype": "float16",
    "compute.weight_quantization": "unquantized",
    "compute.calibration": "uncalibrated",
    "compute.attention_numerics": "torch-sdpa-cpu-2.15/1",
    "repr.schema_version": 1,
    "repr.kv_dtype.text": "float16",
    "repr.kv_dtype.vision": "float16",
    "repr.scale_mode": "unscaled",
    "repr.layout": "block-major",
    "repr.block_size": BLOCK_SIZE,
    "repr.num_layers": 2,
    "repr.num_kv_heads": 2,
    "repr.head_dim": 4,
    "repr.parallel_degree": 1,
    "repr.parallel_rank": 0,
}
READERS = {"tenant": "1" * 64, "adapter": "base", "track": "stable"}
DETAIL = Compression("salient", 1, 4, (1, 4, 4), (2, 2))


@dataclass(frozen=True)
class Block:
    """One block of K and V with a piece of a picture in it."""

    tokens: tuple[int, ...]
    before: tuple[int, ...] = tuple(range(BLOCK_SIZE))
    picture: str = "a red disc"
    grid: tuple[int, ...] = (1, 8, 8)
    detail: Compression | None = None
    offset_in_item: int = 0
    positions: str = "as they stand"
    changed: dict[str, Any] = field(default_factory=dict, hash=False)
    readers: dict[str, str] = field(default_factory=lambda: READERS, hash=False)

    @property
    def identity(self) -> Identity:
        """Of the engine that computes it."""
        return Identity.from_fields({**FIELDS, **self.changed})

    @property
    def scope_fp(self) -> str:
        return scope_fp(Scope(**self.readers))

    @property
    def key(self) -> bytes:
        """What the product looks it up by."""
        identity = self.identity
        root = root_key(compute_fp(identity.compute), repr_fp(identity.repr))
        item = MediaIdentity("image", _sha256(self.picture), self.grid, 4, self.detail)
        run = MediaRun(item, 2, self.offset_in_item, 4, _sha256(self.positions))
        first = block_content(CacheScope.within(root, self.scope_fp).root, self.before, ())
        return block_content(first.key, self.tokens, (run,)).key

    @property
    def payload(self) -> bytes:
        """The vectors that computing it gives."""
        meaning = [
            {**FIELDS, **self.changed}, self.readers, self.before, self.tokens, self.picture,
            self.grid, repr(self.detail), self.offset_in_item, self.positions,
        ]  # fmt: skip
        return hashlib.shake_256(json.dumps(meaning).encode()).digest(PAYLOAD_BYTES)

    def record(
        self, generation: int = 1, payload: bytes | None = None, key: bytes | None = None
    ) -> bytes:
        """As an honest writer makes it, or around another payload, or under another key."""
        payload = self.payload if payload is None else payload
        header = Header(
            kind=RecordKind.MEDIA_KV,
            modality=Modality.IMAGE,
            num_tokens=BLOCK_SIZE,
            payload_bytes=len(payload),
            generation=generation,
            checksum=xxhash.xxh3_64_intdigest(payload),
            repr_fp=bytes.fromhex(repr_fp(self.identity.repr)),
            block_key=self.key if key is None else key,
            scope=bytes.fromhex(self.scope_fp)[:16],
        )
        return encode_header(header) + payload + encode_trailer(header)

    def with_fields(self, **changed: Any) -> Block:
        """The same of another engine; dots in names are written as two underscores."""
        return replace(self, changed={k.replace("__", "."): v for k, v in changed.items()})

    def read_by(self, **readers: str) -> Block:
        return replace(self, readers={**self.readers, **readers})


def wanted(number: int) -> Block:
    """A block of its own for each number."""
    first = 100 + number * BLOCK_SIZE
    return Block(tuple(range(first, first + BLOCK_SIZE)))


def report(incarnation: str) -> IdentityReport:
    """Of the engine that wants them."""
    identity = wanted(0).identity
    return IdentityReport(
        compute_fp=compute_fp(identity.compute),
        repr_fp=repr_fp(identity.repr),
        incarnation=incarnation,
        fields=identity.fields(),
    )


def namespace(incarnation: str) -> Namespace:
    said = report(incarnation)
    return Namespace(0, said.compute_fp, said.repr_fp, said.fields, PAYLOAD_BYTES)


def _sha256(words: str) -> bytes:
    return hashlib.sha256(words.encode()).digest()


# Kind -> rows of the survey of known faults that it is, and who has computed the foreign block.
DONORS: dict[str, tuple[str, Callable[[Block], Block]]] = {
    "other weights": ("1 4 5 8 9", lambda b: b.with_fields(compute__weights__language="f" * 64)),
    "other vision encoder": (
        "3", lambda b: b.with_fields(compute__weights__vision_encoder="f" * 64),
    ),
    "other projector": ("1 4", lambda b: b.with_fields(compute__weights__projector="f" * 64)),
    "other rope theta": ("2", lambda b: b.with_fields(compute__position__theta=1e6)),
    "other rope scaling": ("2", lambda b: b.with_fields(compute__position__scaling="linear 2")),
    "other window": ("2", lambda b: b.with_fields(compute__position__window=4096)),
    "other processor": ("7", lambda b: b.with_fields(compute__processor__config="f" * 64)),
    "other resize": (
        "7", lambda b: b.with_fields(compute__processor__resize_backend="pillow 14.0.0"),
    ),
    "other quantization": (
        "6", lambda b: b.with_fields(compute__weight_quantization="int4-awq"),
    ),
    "other calibration": ("6", lambda b: b.with_fields(compute__calibration="f" * 64)),
    "other numerics": ("6", lambda b: b.with_fields(compute__attention_numerics="triton/1")),
    "other type, equal size": (
        "10 11 15 16",
        lambda b: b.with_fields(
            compute__compute_dtype="bfloat16",
            repr__kv_dtype__text="bfloat16",
            repr__kv_dtype__vision="bfloat16",
        ),
    ),
    "other scales": ("15", lambda b: b.with_fields(repr__scale_mode="per-tensor")),
    "byte-equal layout": ("12 13 17", lambda b: b.with_fields(repr__layout="head-major")),
    "other heads, equal size": (
        "14", lambda b: b.with_fields(repr__num_kv_heads=1, repr__head_dim=8),
    ),
    "other rank": (
        "14 18 39", lambda b: b.with_fields(repr__parallel_degree=2, repr__parallel_rank=1),
    ),
    "other tenant": ("6 22", lambda b: b.read_by(tenant="2" * 64)),
    "other adapter": ("19 20 21", lambda b: b.read_by(adapter="f" * 64)),
    "other track": ("-", lambda b: b.read_by(track="canary")),
    "other picture": ("23 24 25", lambda b: replace(b, picture="a blue disc")),
    "other shape of picture": ("26", lambda b: replace(b, grid=(1, 4, 16))),
    "other detail": ("-", lambda b: replace(b, detail=DETAIL)),
    "other piece of the picture": ("-", lambda b: replace(b, offset_in_item=4)),
    "other positions": ("-", lambda b: replace(b, positions="one later")),
    "other tokens": ("30", lambda b: replace(b, tokens=b.tokens[::-1])),
    "other text before": ("30", lambda b: replace(b, before=b.before[::-1])),
}  # fmt: skip
