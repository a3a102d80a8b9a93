"""What attention and decoder are given in a step, against what the scheduler and the prompt say.

What should be given is derived anew here from the request's own plain data, not with the code that
gives it. Sentences name places and numbers, never tokens.

Pure; must not know: torch, engines, clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chiasm_worker.request import Prompt

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """One request's tokens in a step, as they should be computed.

    Attributes:
        spans: those tokens that see one another, of the spans that hold new tokens.
        cross: (vectors, visible ones, first token, first token after) of each item that is read.
        follows: the token behind the last one computed so far; None: nobody has looked before.
    """

    start: int
    num_tokens: int
    num_known: int
    block_size: int
    num_blocks: int
    spans: tuple[Span, ...] = ()
    cross: tuple[tuple[int, int, int, int], ...] = ()
    follows: int | None = None

    @property
    def end(self) -> int:
        """First token after these."""
        return self.start + self.num_tokens


@dataclass(frozen=True, slots=True)
class Given:
    """What attention was given for them."""

    num_computed: int
    num_new: int
    block_ids: tuple[int, ...]
    spans: tuple[Span, ...] = ()
    cross: tuple[tuple[int, int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LayerRows:
    """Rows that one layer's attention took and made."""

    given: int
    made: int


def chunk_faults(planned: Planned, given: Given) -> Iterator[str]:
    """In what one request's chunk is not as planned."""
    if planned.follows is not None and planned.start > planned.follows:
        yield (
            f"tokens {planned.follows} to {planned.start - 1} were left out: a chunk begins at "
            f"{planned.start}"
        )
    if planned.end > planned.num_known:
        yield f"a chunk ends at token {planned.end} of {planned.num_known} that there are"
    if (given.num_computed, given.num_new) != (planned.start, planned.num_tokens):
        yield (
            f"{given.num_new} tokens behind {given.num_computed} were given to attention, planned "
            f"were {planned.num_tokens} behind {planned.start}"
        )
    needed = -(-planned.end // planned.block_size)
    if not needed <= len(given.block_ids) == planned.num_blocks:
        yield (
            f"{len(given.block_ids)} blocks were given for {planned.end} tokens, which lie in "
            f"{needed} of {planned.num_blocks}"
        )
    if len(set(given.block_ids)) != len(given.block_ids):
        yield "one block stands twice in one sequence"
    if given.spans != planned.spans:
        yield (
            f"the spans whose tokens see one another are {_listed(given.spans)}, of the prompt "
            f"{_listed(planned.spans)}"
        )
    if given.cross != planned.cross:
        yield (
            f"{_vectors(given.cross)} of media are read, of the prompt {_vectors(planned.cross)}"
        )


def step_faults(
    planned: Sequence[Planned],
    given: Sequence[Given],
    num_rows: int,
    media_rows: Sequence[int],
    planned_media_rows: Sequence[int],
) -> Iterator[str]:
    """In what a whole step is not as planned.

    Args:
        num_rows: positions that the decoder is given.
        media_rows: the rows that take an encoder's output.
        planned_media_rows: those that the prompts say.
    """
    if len(planned) != len(given):
        yield f"{len(given)} chunks were given to attention, planned were {len(planned)}"
        return
    for plan, gift in zip(planned, given, strict=True):
        yield from chunk_faults(plan, gift)
    total = sum(plan.num_tokens for plan in planned)
    if num_rows != total:
        yield f"{num_rows} rows were computed for {total} tokens: {num_rows - total} are padding"
    if list(media_rows) != list(planned_media_rows):
        yield (
            f"{len(media_rows)} rows took an encoder's output where the prompts have "
            f"{len(planned_media_rows)} such tokens, or others"
        )
    yield from _written_twice(planned, given)


def layer_faults(rows: Sequence[LayerRows], num_tokens: int) -> Iterator[str]:
    """In what the layers of a step took other rows than there are tokens: the first such layer."""
    for layer in rows:
        if (layer.given, layer.made) != (num_tokens, num_tokens):
            yield (
                f"a layer's attention took the heads of {layer.given} tokens and made {layer.made} "
                f"rows for {num_tokens} tokens"
            )
            return


def planned_positions(prompt: Prompt, start: int, end: int) -> npt.NDArray[np.int64]:
    """The positions [num_axes, end - start] of tokens that may lie beyond the prompt."""
    num_axes, num_prompt = prompt.positions.shape
    behind = np.arange(max(start, num_prompt), end, dtype=np.int64) - num_prompt
    following = np.tile(behind + prompt.next_position, (num_axes, 1))
    return np.concatenate((prompt.positions[:, start:end], following), axis=1)


def position_fault(given: npt.NDArray[np.int64], planned: npt.NDArray[np.int64]) -> str | None:
    """In what the positions of a step are not those of its tokens; None: they are."""
    if given.shape != planned.shape:
        return f"positions of shape {given.shape} were given where {planned.shape} are needed"
    wrong = (given != planned).any(axis=0)
    if not wrong.any():
        return None
    first = int(wrong.argmax())
    return (
        f"{int(wrong.sum())} of {wrong.size} tokens were given positions that are not the model's "
        f"own, the first of them {given[:, first].tolist()} instead of {planned[:, first].tolist()}"
    )


def _written_twice(planned: Sequence[Planned], given: Sequence[Given]) -> Iterator[str]:
    seen: set[int] = set()
    for plan, gift in zip(planned, given, strict=True):
        first, last = plan.start // plan.block_size, -(-plan.end // plan.block_size)
        written = set(gift.block_ids[first:last])
        if written & seen:
            yield f"two sequences wrote to {len(written & seen)} of the same blocks in one step"
            return
        seen |= written


def _listed(spans: Sequence[Span]) -> str:
    return ", ".join(f"{start} to {end - 1}" for start, end in spans) or "none"


def _vectors(cross: Sequence[tuple[int, int, int, int]]) -> str:
    return f"{sum(each[1] for each in cross)} vectors in {len(cross)} items"
