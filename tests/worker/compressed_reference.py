"""transformers' own model, fed with fewer vision tokens: what compressed answers must equal.

What its `get_image_features` returns is compressed, the prompt holds as many placeholders fewer,
and where it computes positions from grids it is told the grid of windows; all else is transformers'
`generate`. Windows are computed here once more, with plain loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from chiasm_worker.equality import Conversation, Reference

Windows = list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Reduction:
    """How one picture is compressed."""

    ratio: int
    method: str = "salient"


def windows(rows: int, columns: int, ratio: int) -> Windows:
    """(row, column) of every token of each window, in reading order."""
    long = (2, 4) if columns >= rows else (4, 2)
    height, width = {1: (1, 1), 4: (2, 2), 8: long, 16: (4, 4)}[ratio]
    return [
        [
            (row, column)
            for row in range(top, min(top + height, rows))
            for column in range(left, min(left + width, columns))
        ]
        for top in range(0, rows, height)
        for left in range(0, columns, width)
    ]


class CompressedReference:
    """Greedy answers of transformers' model about compressed pictures."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._model: Any = reference._model

    @torch.inference_mode()
    def generate(
        self, conversation: Conversation, reductions: Sequence[Reduction], max_tokens: int
    ) -> list[int]:
        """The tokens for a conversation whose pictures, in order, are compressed like this."""
        given = dict(self._reference.inputs(conversation))
        grids = self._grids(given, len(reductions))
        held = [windows(*grid, how.ratio) for grid, how in zip(grids, reductions, strict=True)]
        shorter = self._shortened(given, grids, held)
        with self._compressed_features(given, grids, held, reductions):
            output = self._model.generate(**shorter, max_new_tokens=max_tokens, do_sample=False)
        tokens: list[int] = output[0, shorter["input_ids"].shape[1] :].tolist()
        return tokens

    def _grids(self, given: dict[str, Any], num_pictures: int) -> list[tuple[int, int]]:
        """(rows, columns) of each picture's tokens; square where no grid is given."""
        if "image_grid_thw" in given:
            merge = self._model.config.vision_config.spatial_merge_size
            return [(int(h) // merge, int(w) // merge) for _, h, w in given["image_grid_thw"]]
        num_tokens = int((given["input_ids"] == self._model.config.image_token_id).sum())
        side = round((num_tokens / num_pictures) ** 0.5)
        return [(side, side)] * num_pictures

    def _shortened(
        self, given: dict[str, Any], grids: list[tuple[int, int]], held: list[Windows]
    ) -> dict[str, Any]:
        """The inputs without the placeholders of tokens that are no more."""
        ids = given["input_ids"]
        keep = torch.ones_like(ids[0], dtype=torch.bool)
        places = (ids[0] == self._model.config.image_token_id).nonzero()[:, 0].tolist()
        for (rows, columns), remaining in zip(grids, held, strict=True):
            own, places = places[: rows * columns], places[rows * columns :]
            keep[own[len(remaining) :]] = False
        shorter = {
            name: value[:, keep] if value.shape == ids.shape else value
            for name, value in given.items()
        }
        if "image_grid_thw" in given:
            merge = self._model.config.vision_config.spatial_merge_size
            shorter["image_grid_thw"] = torch.tensor(
                [[1, merge * _rows(remaining), merge * _columns(remaining)] for remaining in held]
            )
        return shorter

    @contextmanager
    def _compressed_features(
        self,
        given: dict[str, Any],
        grids: list[tuple[int, int]],
        held: list[Windows],
        reductions: Sequence[Reduction],
    ) -> Iterator[None]:
        inner = self._model.model
        original = inner.get_image_features
        whole = {"image_grid_thw": given["image_grid_thw"]} if "image_grid_thw" in given else {}

        def compressed(pixel_values: Any, *_: Any, **options: Any) -> Any:
            output = original(pixel_values, **{**options, **whole})
            levels = [output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]
            parts = []
            for index, how in enumerate(reductions):
                every = torch.cat([level[index] for level in levels], dim=1)
                tokens = _compress(every, grids[index], held[index], how.method)
                parts.append(tokens.split([level[0].shape[1] for level in levels], dim=1))
            made = [part[0] for part in parts]
            one_tensor = isinstance(output.pooler_output, torch.Tensor)
            output.pooler_output = torch.cat(made) if one_tensor else made
            if len(levels) > 1:
                output.deepstack_features = [
                    [part[level] for part in parts] for level in range(1, len(levels))
                ]
            return output

        inner.get_image_features = compressed
        try:
            yield
        finally:
            del inner.get_image_features


def _rows(remaining: Windows) -> int:
    return len({window[0][0] for window in remaining})


def _columns(remaining: Windows) -> int:
    return len({window[0][1] for window in remaining})


def _compress(
    features: torch.Tensor, grid: tuple[int, int], held: Windows, method: str
) -> torch.Tensor:
    mean = features.mean(dim=0)
    made = []
    for window in held:
        inside = torch.stack([features[row * grid[1] + column] for row, column in window])
        if method == "mean":
            made.append(inside.mean(dim=0))
        else:
            made.append(inside[(inside - mean).norm(dim=1).argmax()])
    return torch.stack(made)
