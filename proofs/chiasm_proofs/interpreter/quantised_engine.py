"""The engine end to end with quantised weights: as they are on Triton, beside dequantised on torch.

Must not know: kernels. Runs only in a process whose Triton interprets.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from chiasm_worker.equality import ask, num_mismatches
from chiasm_worker.kernels.quantised_linear.packed import Scheme
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from chiasm_worker.models.tiny.quantised import write_quantised

from chiasm_proofs.interpreter.checker import CHECKER
from chiasm_proofs.interpreter.engine import TORCH, TRITON, loaded

NUM_TOKENS = 2
CHUNK = 48


def quantised_mismatches(name: str, seed: int, **scheme: Any) -> dict[str, Any]:
    """How many tokens differ for a tiny model of fresh weights.

    Args:
        scheme: fields of a Scheme.

    Returns: beside numbers of tokens, how often quantised weights were computed with.
    """
    rng = random.Random(seed)
    tiny = next(tiny for tiny in TINY_MODELS if tiny.name == name)
    with tempfile.TemporaryDirectory() as scratch:
        own, quantised, plain = (Path(scratch) / each for each in ("own", "quantised", "plain"))
        write_tiny_model(tiny, own, seed=rng.getrandbits(31))
        write_quantised(own, Scheme(**scheme), quantised, plain)
        dense, packed = loaded(plain, TORCH), loaded(quantised, TRITON)
        # Together and in chunks: few rows, and more than the kernel's tile of few.
        asked = [ask("Two?"), ask("Left or right?")]
        CHECKER.launches.clear()
        answers = [
            prepared.generate(prepared.engine(max_num_batched_tokens=CHUNK), asked, NUM_TOKENS, 1)
            for prepared in (dense, packed)
        ]
    return {
        "num_tokens": sum(map(len, answers[0])),
        "num_mismatches": num_mismatches(*answers),
        "num_kinds": len({token for answer in answers[0] for token in answer}),
        "num_launches": CHECKER.launches["quantised_linear_kernel"],
        "bytes_of_plain": round(packed.model.num_bytes / dense.model.num_bytes, 3),
    }
