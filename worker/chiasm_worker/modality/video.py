"""From a video's bytes to the frames that the model sees, with their times and a digest.

Canonical means: the frames that `choose` picks of all that the video shows, in 8-bit RGB, turned
upright as the camera noted. Frame i of a video is shown at i / (its average frames a second), as
transformers counts. Two files with equal frames at equal times are the same video.

Only containers and codecs named here are opened, from memory, and nothing that they refer to.

Must not know: models, tokens.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from chiasm_contract.config import VideoLimits
from chiasm_contract.errors import InvalidRequest, RequestTooLarge
from chiasm_contract.media_formats import VIDEO_FORMATS_SENTENCE, video_format

from chiasm_worker.modality.reading import check_size, reading

CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "libdav1d", "mpeg4"})
# More frames than a second of any camera's are not worth decoding.
MAX_FRAMES_PER_SECOND = 120
# Tracks rarely end at the same moment, and declared ends are rounded.
_TOLERATED_SECONDS = 0.5
_TAG = b"chiasm.video.rgb8.v1"


@dataclass(frozen=True, slots=True)
class VideoTimes:
    """What a sampling rule may look at."""

    num_frames: int
    frames_per_second: float


@dataclass(frozen=True, slots=True)
class CanonicalVideo:
    """Chosen frames and their identity."""

    # [num_chosen, height, width, 3] uint8
    frames: npt.NDArray[np.uint8]
    # Which of the video's frames they are.
    indices: tuple[int, ...]
    times: VideoTimes
    digest: bytes


Chooser = Callable[[VideoTimes], Sequence[int]]


def decode_video(
    data: bytes, limits: VideoLimits, choose: Chooser, index: int = 0
) -> CanonicalVideo:
    """Decode video number `index` of a request.

    Args:
        choose: the sampling rule: which frames, ascending.

    Raises: InvalidRequest when it cannot be decoded, RequestTooLarge when it exceeds a limit.
    """
    with reading("video", index, data, limits.max_bytes) as name:
        return _Decoding(data, limits, name).run(choose)


class _Decoding:
    """One video's way: count its frames, choose, then decode up to the last chosen one."""

    def __init__(self, data: bytes, limits: VideoLimits, name: str) -> None:
        container = video_format(data)
        if container is None:
            raise InvalidRequest(f"{name} is no video that can be read; {VIDEO_FORMATS_SENTENCE}.")
        self._data = data
        self._format = {"mp4": "mp4", "webm": "matroska"}[container]
        self._limits = limits
        self._name = name

    def run(self, choose: Chooser) -> CanonicalVideo:
        """The chosen frames."""
        with self._open() as container:
            times = self._times(container)
        chosen = tuple(choose(times))
        frames = self._decode(chosen)
        if len(frames) < len(chosen):
            # Some packets show nothing, so there are fewer frames than packets: choose again.
            times = VideoTimes(self._count_frames(), times.frames_per_second)
            chosen = tuple(choose(times))
            frames = self._decode(chosen)
        pixels = np.stack(frames)
        head = struct.pack("<4Id", times.num_frames, *pixels.shape[:3], times.frames_per_second)
        digest = hashlib.sha256(_TAG + head + struct.pack(f"<{len(chosen)}I", *chosen))
        digest.update(pixels.data)
        return CanonicalVideo(pixels, chosen, times, digest.digest())

    def _open(self) -> Any:
        return av.open(io.BytesIO(self._data), mode="r", format=self._format, io_open=_refuse)

    def _stream(self, container: Any) -> Any:
        if not container.streams.video:
            raise InvalidRequest(f"{self._name} holds no pictures.")
        stream = container.streams.video[0]
        codec = stream.codec_context.name
        if codec not in CODECS:
            raise InvalidRequest(f"{self._name} is encoded as {codec}; {VIDEO_FORMATS_SENTENCE}.")
        self._check_size(stream.codec_context.width, stream.codec_context.height)
        return stream

    def _check_size(self, width: int, height: int) -> None:
        check_size(f"{self._name} has frames of", width, height, self._limits.max_pixels)

    def _times(self, container: Any) -> VideoTimes:
        """Number and rate of the frames, from the packets alone: nothing is decoded yet."""
        stream = self._stream(container)
        packets = [packet for packet in container.demux() if packet.size]
        shown = [packet for packet in packets if packet.stream is stream]
        if len(shown) < stream.frames or _is_cut(container, packets):
            raise InvalidRequest(
                f"{self._name} is truncated: it ends before what it declares. Send the whole file."
            )
        num_frames = sum(not packet.is_discard for packet in shown)
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        if num_frames == 0 or rate <= 0:
            raise InvalidRequest(f"{self._name} does not say when its frames are shown.")
        if num_frames > rate * self._limits.max_seconds:
            raise RequestTooLarge(
                f"{self._name} lasts {num_frames / rate:.1f} s; at most "
                f"{self._limits.max_seconds:g} s are allowed. Send a shorter one."
            )
        if rate > MAX_FRAMES_PER_SECOND:
            raise RequestTooLarge(
                f"{self._name} has {rate:g} frames a second; at most {MAX_FRAMES_PER_SECOND} are "
                "allowed. Send a slower one."
            )
        return VideoTimes(num_frames, rate)

    def _count_frames(self) -> int:
        with self._open() as container:
            return sum(1 for _ in container.decode(self._stream(container)))

    def _decode(self, chosen: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        wanted, frames = set(chosen), []
        with self._open() as container:
            for i, frame in enumerate(container.decode(self._stream(container))):
                if frame.is_corrupt:
                    raise InvalidRequest(
                        f"{self._name} is damaged at frame {i}. Send the whole file."
                    )
                if i in wanted:
                    self._check_size(frame.width, frame.height)
                    frames.append(_upright(frame))
                if len(frames) == len(wanted):
                    break
        return frames


def _is_cut(container: Any, packets: Sequence[Any]) -> bool:
    """Whether the last packet of all tracks ends well before the declared end."""
    if not container.duration:  # recorded without knowing its end
        return False
    ends = [
        (packet.pts + (packet.duration or 0)) * packet.time_base
        for packet in packets
        if packet.pts is not None
    ]
    missing = ((container.start_time or 0) + container.duration) / av.time_base - max(
        ends, default=0
    )
    return bool(missing > _TOLERATED_SECONDS)


def _upright(frame: Any) -> npt.NDArray[np.uint8]:
    """8-bit RGB pixels as a person would see them."""
    pixels: npt.NDArray[np.uint8] = frame.to_ndarray(format="rgb24")
    # FFmpeg's angle says how far the frame must be turned anticlockwise to stand upright.
    return np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90) % 4))


def _refuse(*_: Any, **__: Any) -> Any:
    raise PermissionError("a video may not refer to other files")
