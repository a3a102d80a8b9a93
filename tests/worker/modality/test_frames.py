"""Which frames of a video the model sees."""

from __future__ import annotations

import pytest
import transformers as tf
from chiasm_contract.errors import InvalidRequest
from chiasm_worker.modality.frames import FrameChooser
from chiasm_worker.modality.video import VideoTimes
from hypothesis import given
from hypothesis import strategies as st

PROCESSORS = {
    "qwen2-vl": tf.Qwen2VLVideoProcessor(),
    "qwen3-vl": tf.Qwen3VLVideoProcessor(),
    "onevision": tf.LlavaOnevisionVideoProcessor(),
    "of its own number": tf.LlavaOnevisionVideoProcessor(num_frames=8),
}
PAIRS = ("qwen2-vl", "qwen3-vl")


@pytest.mark.parametrize(
    ("name", "times", "chosen"),
    [
        ("qwen2-vl", VideoTimes(40, 10.0), [0, 5, 10, 15, 20, 25, 30, 35]),
        ("qwen3-vl", VideoTimes(40, 10.0), [0, 6, 11, 17, 22, 28, 33, 39]),
        ("onevision", VideoTimes(40, 10.0), [0, 5, 10, 15, 20, 25, 30, 35]),
        ("of its own number", VideoTimes(80, 10.0), [0, 10, 20, 30, 40, 50, 60, 70]),
        ("of its own number", VideoTimes(3, 10.0), [0, 1, 2]),
    ],
)
def test_the_models_own_rule(name: str, times: VideoTimes, chosen: list[int]):
    assert FrameChooser(PROCESSORS[name], 32)(times) == chosen


@pytest.mark.parametrize("name", PROCESSORS)
@given(number=st.integers(1, 4000), rate=st.floats(1, 120), most=st.integers(2, 40))
def test_chosen_frames_exist_in_order_and_within_the_limit(
    name: str, number: int, rate: float, most: int
):
    group = 2 if name in PAIRS else 1
    if number < group:
        return
    chosen = FrameChooser(PROCESSORS[name], most)(VideoTimes(number, rate))
    assert chosen == sorted(set(chosen))
    assert chosen[0] >= 0
    assert chosen[-1] < number
    assert 1 <= len(chosen) <= most
    if name == "qwen2-vl":
        assert len(chosen) % group == 0


def test_a_video_too_short_for_the_encoder_is_refused():
    with pytest.raises(InvalidRequest, match="has 1 frame; this model needs at least 2"):
        FrameChooser(PROCESSORS["qwen3-vl"], 32)(VideoTimes(1, 10.0))
