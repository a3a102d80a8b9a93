"""Which frames of a video the model sees: the model's own rule, below a limit.

The rule is `sample_frames` of the model's video processor at the processor's own rate, or at 2
frames a second where it names none. Where that gives more than the limit, the limit's number is
spread evenly by the same function.

Must not know: files, pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chiasm_contract.errors import InvalidRequest
from transformers.video_utils import VideoMetadata

from chiasm_worker.modality.video import VideoTimes

DEFAULT_FRAMES_PER_SECOND = 2.0


class FrameChooser:
    """The sampling rule of one video processor."""

    def __init__(self, video_processor: Any, max_frames: int) -> None:
        self._processor = video_processor
        # Encoders of several frames at a time take whole groups.
        self._group = int(getattr(video_processor, "temporal_patch_size", None) or 1)
        self._max_frames = max(self._group, max_frames - max_frames % self._group)

    def __call__(self, times: VideoTimes) -> Sequence[int]:
        """Ascending frame numbers.

        Raises: InvalidRequest when there are too few for the model.
        """
        if times.num_frames < self._group:
            raise InvalidRequest(
                f"The video has {times.num_frames} frame; this model needs at least "
                f"{self._group}. Send a picture or a longer video."
            )
        number = getattr(self._processor, "num_frames", None)
        if number is None:
            rate = getattr(self._processor, "fps", None) or DEFAULT_FRAMES_PER_SECOND
            # No frame is shown twice, however slow the video.
            chosen = self._sample(times, fps=min(rate, times.frames_per_second))
        else:
            chosen = self._sample(times, num_frames=min(number, times.num_frames))
        if len(chosen) > self._max_frames:
            chosen = self._sample(times, num_frames=self._max_frames)
        return chosen

    def _sample(self, times: VideoTimes, **rule: Any) -> list[int]:
        metadata = VideoMetadata(times.num_frames, times.frames_per_second)
        indices = self._processor.sample_frames(metadata, **rule)
        # Steps in floating point may name one frame behind the last.
        return [int(index) for index in indices if index < times.num_frames]
