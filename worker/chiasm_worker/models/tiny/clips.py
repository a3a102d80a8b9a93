"""Small videos of coloured squares that move, and sounds of a few tones, for tests and benchmarks.

Must not know: models.
"""

from __future__ import annotations

import io
import wave
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import av
import numpy as np

_SQUARE = 8


def write_clip(
    seed: int,
    num_frames: int = 20,
    rate: Fraction | int = 10,
    size: tuple[int, int] = (80, 64),
    kind: tuple[str, str] = ("mp4", "mpeg4"),
    options: dict[str, str] | None = None,
) -> bytes:
    """A video file of `num_frames` frames at `rate` a second; size is (width, height) in pixels.

    Written in a thread that ends with it: run by root, SVT-AV1 makes the thread that calls it a
    real-time one, and whatever that starts later would keep the rest of the machine from running.

    Args:
        kind: container and codec, by FFmpeg's names.
        options: of the codec.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(
            _write_clip, seed, num_frames, rate, size, kind, options or {}
        ).result()


def _write_clip(
    seed: int,
    num_frames: int,
    rate: Fraction | int,
    size: tuple[int, int],
    kind: tuple[str, str],
    options: dict[str, str],
) -> bytes:
    rng = np.random.default_rng(seed)
    width, height = size
    squares = rng.integers(0, 256, (height // _SQUARE, width // _SQUARE, 3), dtype=np.uint8)
    one = np.ones((_SQUARE, _SQUARE, 1), np.uint8)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind[0]) as container:
        stream: Any = container.add_stream(kind[1], rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for i in range(num_frames):
            pixels = np.kron(np.roll(squares, i, axis=1), one)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return buffer.getvalue()


def write_sound(seed: int, seconds: float = 1.0, rate: int = 16_000) -> bytes:
    """A WAV file of 16-bit numbers: three tones and some noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    tones = sum(np.sin(2 * np.pi * pitch * time) for pitch in rng.uniform(100, 4000, 3))
    wanted = (tones / 4 + rng.normal(0, 0.05, time.shape)).clip(-1, 1) * (2**15 - 1)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(wanted.astype("<i2").tobytes())
    return buffer.getvalue()
