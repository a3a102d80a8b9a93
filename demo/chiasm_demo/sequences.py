"""Packs a picture and many questions about it into one training sequence.

    prefix                                 session 1          session 2
    <|im_start|>user\\n <vision tokens>   question answer    question answer ...

Every session sees the prefix and itself only, and its positions start right after the prefix: each
is exactly the prompt that the chat template makes, but the picture is computed once for all.
A session may have two turns, so that follow-up questions are known too.

Knows token ids, positions and masks; nothing of how vision tokens are made.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from chiasm_demo.questions import Question
from chiasm_demo.tokenizer import IM_END, IM_START, IMAGE_PAD, VISION_END, VISION_START

_TWO_TURNS_SHARE = 0.15


@dataclass(frozen=True)
class Packed:
    """A batch of sequences; L is the longest, padded on the right."""

    input_ids: torch.Tensor  # [batch, L] int64
    position_ids: torch.Tensor  # [3, batch, L] int64: time, row, column
    mask: torch.Tensor  # [batch, 1, L, L] bool: may attend
    targets: torch.Tensor  # [batch, L] int64: the token that position predicts, -100 for none
    kinds: torch.Tensor  # [batch, L] int64: index of the question's kind, where there is a target
    image: slice  # the positions of the vision tokens, the same in every row


class Packer:
    """Turns questions into packed batches for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, kinds: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._kinds = {kind: index for index, kind in enumerate(kinds)}
        ids = tokenizer.convert_tokens_to_ids
        self._image_id = int(ids(IMAGE_PAD))
        self._end_id = int(ids(IM_END))
        self._pad_id = int(tokenizer.pad_token_id)
        self._open = self._encode(f"{IM_START}user\n{VISION_START}")
        self._close = self._encode(VISION_END)
        self._to_answer = self._encode(f"{IM_END}\n{IM_START}assistant\n")
        self._to_next_turn = self._encode(f"\n{IM_START}user\n")

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def pack(
        self, questions: list[list[Question]], grid: tuple[int, int], rng: random.Random
    ) -> Packed:
        """One row per picture of the same `grid` (rows, columns of vision tokens)."""
        texts = [text for row in questions for q in row for text in (q.text, q.answer)]
        encoded = iter(self._tokenizer(texts, add_special_tokens=False)["input_ids"])
        rows = []
        for asked in questions:
            turns = [(next(encoded), next(encoded), self._kinds[q.kind]) for q in asked]
            rows.append(self._row(turns, rng))
        return self._batch(rows, grid)

    def _row(
        self, turns: list[tuple[list[int], list[int], int]], rng: random.Random
    ) -> list[list[tuple[int, int, int]]]:
        """Sessions of (token, target, kind)."""
        sessions: list[list[tuple[int, int, int]]] = []
        for question, answer, kind in turns:
            follow_up = bool(sessions) and rng.random() < _TWO_TURNS_SHARE
            asked = (self._to_next_turn if follow_up else []) + question + self._to_answer
            tokens = asked + answer + [self._end_id]
            targets = [-100] * (len(asked) - 1) + answer + [self._end_id, -100]
            turn = [(token, target, kind) for token, target in zip(tokens, targets, strict=True)]
            if follow_up:
                sessions[-1].extend(turn)
            else:
                sessions.append(turn)
        return sessions

    def _batch(self, rows: list[list[list[tuple[int, int, int]]]], grid: tuple[int, int]) -> Packed:
        height, width = grid
        num_image = height * width
        prefix = [*self._open, *([self._image_id] * num_image), *self._close]
        length = len(prefix) + max(sum(map(len, sessions)) for sessions in rows)
        batch = len(rows)
        ids = torch.full((batch, length), self._pad_id)
        targets = torch.full((batch, length), -100)
        kinds = torch.zeros((batch, length), dtype=torch.int64)
        session_of = torch.full((batch, length), -1)
        positions = torch.zeros((3, batch, length), dtype=torch.int64)
        ids[:, : len(prefix)] = torch.tensor(prefix)
        session_of[:, : len(prefix)] = 0
        positions[:, :, : len(prefix)] = self._prefix_positions(grid)[:, None]
        after = int(positions[0, 0, len(prefix) - 1]) + 1
        for index, sessions in enumerate(rows):
            at = len(prefix)
            for number, session in enumerate(sessions, start=1):
                columns = torch.tensor(session).T
                place = slice(at, at + len(session))
                ids[index, place], targets[index, place], kinds[index, place] = columns
                session_of[index, place] = number
                positions[:, index, place] = torch.arange(after, after + len(session))
                at += len(session)
        start = len(self._open)
        image = slice(start, start + num_image)
        return Packed(ids, positions, _may_attend(session_of), targets, kinds, image)

    def _prefix_positions(self, grid: tuple[int, int]) -> torch.Tensor:
        """[3, prefix]: Qwen3-VL's scheme for text, one picture, text."""
        height, width = grid
        start = len(self._open)
        text = torch.arange(start).expand(3, -1)
        row = torch.arange(height).repeat_interleave(width)
        column = torch.arange(width).repeat(height)
        image = start + torch.stack([torch.zeros_like(row), row, column])
        close = torch.arange(len(self._close)).expand(3, -1) + start + max(height, width)
        return torch.cat([text, image, close], dim=1)


def _may_attend(session_of: torch.Tensor) -> torch.Tensor:
    """Sessions [batch, L] -> [batch, 1, L, L]: causal, and only the prefix (0) or one's own."""
    length = session_of.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = session_of[:, :, None] == session_of[:, None, :]
    prefix = (session_of == 0)[:, None, :]
    return ((same | prefix) & causal)[:, None]
