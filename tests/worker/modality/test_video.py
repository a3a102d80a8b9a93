"""A client's video becomes frames and times, or a sentence."""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import av
import numpy as np
import pytest
from chiasm_contract.config import VideoLimits
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.modality.video import CanonicalVideo, VideoTimes, decode_video
from chiasm_worker.models.tiny.clips import write_clip
from hypothesis import given, settings
from hypothesis import strategies as st

CLIP = write_clip(1)
SMALL = {
    kind: write_clip(1, 6, size=(32, 32), kind=kind)
    for kind in (("mp4", "mpeg4"), ("webm", "libvpx"), ("matroska", "libx264"))
}
KINDS = [
    ("mp4", "mpeg4"), ("mp4", "libx264"), ("mp4", "libx265"), ("mov", "libx264"),
    ("matroska", "libx264"), ("webm", "libvpx"), ("webm", "libvpx-vp9"), ("webm", "libsvtav1"),
]  # fmt: skip
QUIET = {"libx265": {"x265-params": "log-level=none"}, "libsvtav1": {"svtav1-params": "rc=0"}}


def every_fifth(times: VideoTimes) -> Sequence[int]:
    return range(0, times.num_frames, 5)


def everything(times: VideoTimes) -> Sequence[int]:
    return range(times.num_frames)


def decoded(data: bytes, **limits: float) -> CanonicalVideo:
    return decode_video(data, VideoLimits.model_validate(limits), everything)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_the_chosen_frames_of_every_kind(kind: tuple[str, str]):
    data = write_clip(1, kind=kind, options=QUIET.get(kind[1]))
    video = decode_video(data, VideoLimits(), every_fifth)
    assert (video.times, video.indices) == (VideoTimes(20, 10.0), (0, 5, 10, 15))
    whole = decoded(data).frames
    assert whole.shape == (20, 64, 80, 3)
    np.testing.assert_array_equal(video.frames, whole[::5])
    # Squares move, so frames differ; what they show is what was drawn, but for compression.
    reference = decoded(CLIP).frames.astype(int)
    assert np.abs(whole.astype(int) - reference).mean() < 12
    assert np.abs(whole[0].astype(int) - whole[5].astype(int)).mean() > 30


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_no_codec_changes_how_this_process_is_scheduled(kind: tuple[str, str]):
    decoded(write_clip(1, kind=kind, options=QUIET.get(kind[1])))
    threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_OTHER}


def test_equal_frames_at_equal_times_are_the_same_video():
    assert decoded(CLIP).digest == decoded(CLIP).digest
    remuxed = decoded(write_clip(1, kind=("matroska", "mpeg4")))
    np.testing.assert_array_equal(remuxed.frames, decoded(CLIP).frames)
    assert remuxed.digest == decoded(CLIP).digest
    others = [
        decoded(write_clip(2)),
        decoded(write_clip(1, rate=20)),
        decode_video(CLIP, VideoLimits(), every_fifth),
    ]
    assert len({video.digest for video in others} | {decoded(CLIP).digest}) == 4


def with_hidden_frames(data: bytes, hidden: set[int]) -> bytes:
    """A VP8 video some of whose packets are decoded but not shown."""
    show_frame = 1 << 4
    buffer = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(buffer, "w", format="webm") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for i, packet in enumerate(p for p in source.demux(video=0) if p.size):
            content = bytearray(bytes(packet))
            content[0] &= ~show_frame if i in hidden else 255
            copy = av.Packet(bytes(content))
            copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
            copy.is_keyframe, copy.stream = packet.is_keyframe, stream
            target.mux(copy)
    return buffer.getvalue()


def test_packets_that_show_nothing_are_no_frames():
    data = with_hidden_frames(write_clip(1, kind=("webm", "libvpx")), hidden={3, 7, 19})
    video = decoded(data)
    assert (video.times.num_frames, len(video.frames)) == (17, 17)
    assert decode_video(data, VideoLimits(), every_fifth).indices == (0, 5, 10, 15)


@pytest.mark.parametrize("kind", [("mp4", "mpeg4"), ("matroska", "libx264"), ("webm", "libvpx")])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.8])
def test_a_truncated_video_is_refused(kind: tuple[str, str], share: float):
    data = write_clip(1, 40, kind=kind)
    with pytest.raises(InvalidRequest, match=r"^Video 3 .*truncated.*Send the whole file\.$") as e:
        decode_video(data[: int(len(data) * share)], VideoLimits(), everything, index=2)
    assert e.value.param == "videos[2]"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no video that can be read; MP4"),
        (b"#EXTM3U\nfile:///etc/passwd\n", "is no video that can be read; MP4"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "is no video that can be read; MP4"),
        (b"\x00\x00\x00\x18ftypisom" + b"\xff" * 400, "cannot be decoded"),
        (b"\x1aE\xdf\xa3" + bytes(range(256)), "cannot be decoded"),
        (write_clip(1, kind=("matroska", "ffv1")), "is encoded as ffv1; MP4"),
    ],
    ids=["nothing", "playlist", "concat", "mp4 noise", "webm noise", "codec"],
)
def test_what_is_no_video_is_the_clients_fault(data: bytes, message: str):
    with pytest.raises(InvalidRequest, match=message) as error:
        decoded(data)
    assert error.value.param == "videos[0]"
    assert "Errno" not in str(error.value)


@given(
    kind=st.sampled_from([("mp4", "mpeg4"), ("webm", "libvpx"), ("matroska", "libx264")]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4),
    kept=st.floats(0, 1),
)
@settings(max_examples=150)
def test_spoilt_files_are_videos_or_the_clients_fault(
    kind: tuple[str, str], changes: list[tuple[float, int]], kept: float
):
    data = bytearray(SMALL[kind])
    for place, mask in changes:
        data[int(place * len(data))] ^= mask
    video = None
    with contextlib.suppress(ClientFault):
        video = decoded(bytes(data[: round(len(data) * kept)]))
    assert video is None or len(video.frames) == len(video.indices) >= 1


def test_a_file_without_pictures_is_refused():
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16000, layout="mono")
        samples = np.zeros((1, 1024), np.float32)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
        frame.sample_rate = 16000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with pytest.raises(InvalidRequest, match="holds no pictures"):
        decoded(buffer.getvalue())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_bytes": 1024}, r"has \d+ bytes; at most 1024"),
        ({"max_pixels": 4000}, r"has frames of 80 x 64 pixels; at most 4000 pixels"),
        ({"max_seconds": 1.5}, r"lasts 2.0 s; at most 1.5 s"),
    ],
)
def test_limits_are_checked_before_frames_are_decoded(limits: dict[str, float], message: str):
    with pytest.raises(RequestTooLarge, match=message) as error:
        decoded(CLIP, **limits)
    assert error.value.param == "videos[0]"


@pytest.mark.parametrize("size", [(2016, 8), (8, 2016)])
def test_a_shape_that_no_processor_takes_is_the_clients_fault(size: tuple[int, int]):
    """The fault: what decodes well fails later, where nobody turns it into a sentence."""
    data = write_clip(1, 4, size=size, kind=("webm", "libvpx"))
    with pytest.raises(InvalidRequest, match=r"x \d+ pixels; one side may be at most 200") as error:
        decoded(data)
    assert error.value.param == "videos[0]"


def test_the_longest_shape_that_is_taken_is_taken_by_the_processor(
    prepared: Callable[[str], Prepared],
):
    for name in ("qwen2-grouped", "qwen3-grouped"):
        for size in ((1600, 8), (8, 1600)):
            data = write_clip(1, 4, size=size, kind=("webm", "libvpx"))
            assert prepared(name).prompt(ask("?", videos=[data]))[0].spans


def test_more_frames_a_second_than_any_camera_takes_are_refused():
    with pytest.raises(RequestTooLarge, match="has 240 frames a second; at most 120"):
        decoded(write_clip(1, 40, rate=240))


def test_a_frame_lies_as_the_camera_was_held():
    upright = decoded(CLIP).frames
    # The track header's matrix: [a b u, c d v, x y w]; this one turns by 90 degrees clockwise.
    at = CLIP.index(b"tkhd") + 4 + 40
    one = 1 << 16
    matrix = struct.pack(">9i", 0, one, 0, -one, 0, 0, 64 * one, 0, 1 << 30)
    turned = decoded(CLIP[:at] + matrix + CLIP[at + 36 :])
    np.testing.assert_array_equal(turned.frames, np.rot90(upright, -1, axes=(1, 2)))
