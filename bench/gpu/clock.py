"""How long a launch takes, and what the GPU could do at best, measured in the same run.

Must not know: kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from triton import testing

COPIED_BYTES = 1 << 30
MATRIX_SIZE = 8192


@dataclass(frozen=True)
class Timed:
    """A launch's time.

    Attributes:
        seconds: the median; low and high are quartiles.
        is_recorded: whether a CUDA graph was replayed, so that the host's time has no part in it.
    """

    seconds: float
    low: float
    high: float
    is_recorded: bool

    def as_row(self) -> dict[str, Any]:
        """For a table."""
        return {
            "microseconds": round(self.seconds * 1e6, 2),
            "quartiles": [round(self.low * 1e6, 2), round(self.high * 1e6, 2)],
            "recorded": self.is_recorded,
        }


def timed(launch: Callable[[], Any]) -> Timed:
    """Time a launch, by a recorded graph where it can be recorded.

    The L2 cache is not emptied between launches: what fits it is read from there.
    """
    quantiles = [0.5, 0.25, 0.75]
    launch()
    torch.cuda.synchronize()
    try:
        median, low, high = testing.do_bench_cudagraph(launch, rep=100, quantiles=quantiles)
        is_recorded = True
    except RuntimeError:
        # Something in it asks the device, which a recording must not.
        torch.cuda.synchronize()
        median, low, high = testing.do_bench(launch, warmup=50, rep=200, quantiles=quantiles)
        is_recorded = False
    return Timed(median / 1e3, low / 1e3, high / 1e3, is_recorded)


def ceilings(device: torch.device) -> dict[str, float]:
    """Bytes copied (read and written) and bf16 operations of a matrix product, a second each."""
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied = timed(lambda: target.copy_(source))
    shape = (MATRIX_SIZE, MATRIX_SIZE)
    a, b = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    multiplied = timed(lambda: torch.matmul(a, b, out=product))
    return {
        "copy": 2 * COPIED_BYTES / copied.seconds,
        "matmul": 2 * MATRIX_SIZE**3 / multiplied.seconds,
    }
