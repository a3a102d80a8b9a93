"""Positions on three axes are transformers' own, to the last one."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from chiasm_contract.messages import ChatMessage, ImagePart, TextPart, VideoPart
from chiasm_worker.equality import Conversation, Prepared, Reference
from chiasm_worker.models.tiny.clips import write_clip

CONTENT = (
    VideoPart(index=0),
    TextPart(text="before "),
    ImagePart(index=0),
    ImagePart(index=1),
    TextPart(text=" between "),
    VideoPart(index=1),
    VideoPart(index=0),
)
RATES = (Fraction(10), Fraction(24000, 1001), Fraction(30000, 1001), Fraction(25, 2), Fraction(7))


@pytest.mark.parametrize("name", ["qwen2-grouped", "qwen2.5-grouped", "qwen3-grouped"])
@pytest.mark.parametrize("rate", RATES, ids=str)
def test_positions_are_transformers_own(
    name: str,
    rate: Fraction,
    prepared: Callable[[str], Prepared],
    reference: Callable[[str], Reference],
    picture: Callable[..., bytes],
):
    pictures = (picture(1, 90, 70), picture(2, 60, 130))
    videos = (write_clip(1, 41, rate), write_clip(2, 90, rate, (64, 96)))
    conversation = Conversation((ChatMessage(role="user", content=CONTENT),), pictures, videos)
    prompt, _ = prepared(name).prompt(conversation)
    expected, delta = reference(name).positions(conversation)
    np.testing.assert_array_equal(prompt.positions, expected)
    assert prompt.next_position == len(prompt.token_ids) + delta
    (video, *_, again) = prompt.spans
    assert video.item == again.item
    assert video.position_digest != again.position_digest
