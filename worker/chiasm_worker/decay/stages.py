"""The time to the first token, with all stages or with one that has nothing to do.

    reading     files are decoded and processed        left out: they were, and are still held
    positions   places of media tokens are computed    left out: remembered
    encoder     pictures go through the tower          left out with reading: it has seen them
    prefill     K and V of the prompt are computed     left out with both: they are in the pool

The engine is the one that serves, in this thread; nothing else is computed meanwhile.

Must not know: which ratios are measured, what is made of the seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chiasm_worker.engine.engine import Engine
from chiasm_worker.equality import Conversation, Prepared
from chiasm_worker.models.base import LoadedModel, PlacedItem
from chiasm_worker.request import SamplingParams

Clock = Callable[[], float]
_POOL_BYTES = 2**27


class Stages:
    """One model, and its first tokens.

    Args:
        clock: seconds, as `time.thread_time`.
    """

    def __init__(self, model: LoadedModel, clock: Clock) -> None:
        self._clock = clock
        self._plain = Prepared(model)
        self._placed = Prepared(replace(model, family=_RemembersPositions(model.family)))
        limits = {"max_model_len": model.max_positions, "kv_cache_bytes": _POOL_BYTES}
        # Without a prefix cache what is asked twice is prefilled twice.
        self._engine = self._plain.engine(prefix_caching=False, **limits)
        self._remembering = self._plain.engine(**limits)

    def tokens(self, conversation: Conversation) -> tuple[int, int]:
        """(visual tokens, text tokens) of a conversation's prompt."""
        prompt, _ = self._plain.prompt(conversation)
        visual = prompt.num_media_tokens["image"]
        return visual, len(prompt.token_ids) - visual

    def whole(self, conversation: Conversation) -> float:
        """Seconds to the first token of a conversation that was never asked."""
        return self._first_token(self._plain, self._engine, conversation)

    def without_reading(self, conversation: Conversation) -> float:
        """Of one whose files were read."""
        held = self._plain.prompt(conversation)
        seconds = self._first_token(self._plain, self._engine, conversation)
        del held
        return seconds

    def without_positions(self, conversation: Conversation) -> float:
        """Of one whose positions are known; its files are read anew."""
        self._placed.prompt(conversation)
        return self._first_token(self._placed, self._engine, conversation)

    def without_encoder(self, conversation: Conversation) -> float:
        """Of one whose pictures the encoder has seen."""
        self._first_token(self._plain, self._engine, conversation)
        return self._first_token(self._plain, self._engine, conversation)

    def without_prefill(self, conversation: Conversation) -> float:
        """Of one that was asked before: neither encoder nor prefill have anything to do."""
        self._first_token(self._plain, self._remembering, conversation)
        return self._first_token(self._plain, self._remembering, conversation)

    def _first_token(self, prepared: Prepared, engine: Engine, conversation: Conversation) -> float:
        started = self._clock()
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        prepared.add(engine, "measured", conversation, params)
        while engine.has_requests:
            engine.step()
        return self._clock() - started


class _RemembersPositions:
    """A family whose positions are computed once for each prompt."""

    def __init__(self, family: Any) -> None:
        self._family = family
        self._known: dict[tuple[int, tuple[PlacedItem, ...]], npt.NDArray[np.int64]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def positions(
        self, num_tokens: int, items: Sequence[PlacedItem], config: Any
    ) -> npt.NDArray[np.int64]:
        """As the family's, see Family."""
        key = (num_tokens, tuple(items))
        if key not in self._known:
            self._known[key] = self._family.positions(num_tokens, items, config)
        return self._known[key]
