"""One model between two swaps.

A swap puts another model before the same pool and arena: blocks of both lie side by side, and
because every key descends from `root`, nothing that the one computed is ever found for the other.
What began with a model ends with it. An epoch lives as long as an answer needs it; then its model
goes.

Must not know: requests, how a swap comes about.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_worker.kvcache.prefix_cache import CacheScope
from chiasm_worker.kvcache.spec import KVCacheSpec
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.tiers.exchange import TierExchange


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Epoch:
    """A model and what its blocks are.

    Attributes:
        engine_gen: counts the swaps.
        root: what every key of its blocks descends from.
        tiers: what it has to do with the tiers; None: there are none.
    """

    engine_gen: int
    model: LoadedModel
    root: bytes
    tiers: TierExchange | None = None

    def scope(self, scope_fp: str) -> CacheScope:
        """The readers `scope_fp` of this model's blocks."""
        return CacheScope.within(self.root, scope_fp, self.engine_gen)


def check_exchangeable(
    old: LoadedModel, new: LoadedModel, spec: KVCacheSpec, new_spec: KVCacheSpec
) -> None:
    """Raise ValueError naming what differs unless blocks of both models can share one pool."""
    shapes = [
        {
            "type of numbers": model.dtype,
            "device": model.device,
            "implementation": model.choice.name,
            "width of an encoder output": model.media_width,
            "number of cross-attention layers": len(model.decoder.spec.cross_layers),
            "shape of a block": shape,
        }
        for model, shape in ((old, spec), (new, new_spec))
    ]
    for name, value in shapes[0].items():
        if shapes[1][name] != value:
            raise ValueError(
                f"The {name} was {value} and would become {shapes[1][name]}; that takes another "
                "pool. Restart the worker instead."
            )
