"""Which container a media file is, from its first bytes: names and claims of clients may lie.

Both the sidecar (before it passes bytes on) and the worker (before it decodes them) ask here, so
that they never disagree.
"""

from __future__ import annotations

from typing import Literal

VideoFormat = Literal["mp4", "webm"]
AudioFormat = Literal["wav", "flac"]
VIDEO_FORMATS_SENTENCE = (
    "MP4 (also QuickTime) and WebM (also Matroska) with H.264, H.265, VP8, VP9, AV1 or MPEG-4 "
    "pictures are supported"
)

AUDIO_FORMATS_SENTENCE = "WAV and FLAC are supported"


def video_format(data: bytes) -> VideoFormat | None:
    """The kind of container, None if it is none of the supported ones."""
    if data[4:8] == b"ftyp":
        return "mp4"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "webm"
    return None


def audio_format(data: bytes) -> AudioFormat | None:
    """The kind of file, None if it is none of the supported ones."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    return None
