"""From a sound's bytes to the samples that the model hears, with a digest.

Canonical means: one channel (the mean of all), at the model's rate, as numbers between -1 and 1.
Two files with equal samples are the same sound.

Must not know: models, tokens.
"""

from __future__ import annotations

import hashlib
import io
import struct
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from chiasm_contract.config import AudioLimits
from chiasm_contract.errors import InvalidRequest, RequestTooLarge
from chiasm_contract.media_formats import AUDIO_FORMATS_SENTENCE, audio_format

from chiasm_worker.modality.reading import reading

# What recorders write into the two containers. No other decoder is opened, for probing neither.
CODECS = frozenset({
    "flac", "pcm_u8", "pcm_s16le", "pcm_s24le", "pcm_s32le", "pcm_f32le", "pcm_f64le", "pcm_alaw",
    "pcm_mulaw",
})  # fmt: skip
# Shorter sounds make no two tokens, and hardly a sound.
MIN_SECONDS = 0.1
# Beyond these no recorder goes, and FFmpeg's resampler needs endless filters or memory.
MAX_CHANNELS = 8
MIN_RATE, MAX_RATE = 4_000, 192_000
_TAG = b"chiasm.audio.mono.f32.v1"


@dataclass(frozen=True, slots=True)
class SoundForm:
    """What a model's feature extractor takes."""

    samples_per_second: int
    max_seconds: float

    @classmethod
    def of(cls, feature_extractor: Any) -> SoundForm:
        """What this one takes; it would drop the rest of a longer sound without a word."""
        if feature_extractor is None:
            return cls(samples_per_second=16_000, max_seconds=0.0)
        rate = int(feature_extractor.sampling_rate)
        return cls(rate, feature_extractor.n_samples / rate)


@dataclass(frozen=True, slots=True)
class CanonicalAudio:
    """Samples and their identity."""

    # [num_samples] float32
    samples: npt.NDArray[np.float32]
    digest: bytes


def decode_audio(
    data: bytes, limits: AudioLimits, form: SoundForm, index: int = 0
) -> CanonicalAudio:
    """Decode sound number `index` of a request.

    Raises: InvalidRequest when it cannot be decoded, RequestTooLarge when it exceeds a limit.
    """
    max_seconds = min(limits.max_seconds, form.max_seconds)
    with reading("audio", index, data, limits.max_bytes) as name:
        samples = _decode(data, name, form.samples_per_second, max_seconds)
    head = struct.pack("<2I", form.samples_per_second, len(samples))
    digest = hashlib.sha256(_TAG + head + samples.astype("<f4").tobytes()).digest()
    return CanonicalAudio(samples, digest)


def _decode(data: bytes, name: str, rate: int, max_seconds: float) -> npt.NDArray[np.float32]:
    kind = audio_format(data)
    if kind is None:
        raise InvalidRequest(f"{name} is no sound that can be read; {AUDIO_FORMATS_SENTENCE}.")
    # Channels are kept apart here: FFmpeg's own mix of two is louder than each. And side by side in
    # one plane: PyAV reads behind the last of 8 planes and ends the process.
    resampler = av.AudioResampler(format="flt", rate=rate)
    parts: list[npt.NDArray[np.float32]] = []
    count, decoded = 0, 0
    only = {"codec_whitelist": ",".join(sorted(CODECS))}
    with av.open(io.BytesIO(data), mode="r", format=kind, options=only) as container:
        stream: Any = container.streams.audio[0]
        codec = stream.codec_context.name
        if codec not in CODECS:
            raise InvalidRequest(
                f"{name} is encoded as {codec}; FLAC and WAV with PCM, A-law or mu-law are "
                "supported. Convert it."
            )
        form = _form(stream.codec_context)
        if form[0] > MAX_CHANNELS or not MIN_RATE <= form[1] <= MAX_RATE:
            raise InvalidRequest(
                f"{name} has {form[0]} channels at {form[1]} samples a second; up to "
                f"{MAX_CHANNELS} channels at {MIN_RATE} to {MAX_RATE} are supported."
            )
        declared = (stream.duration or 0) * stream.time_base
        for frame in container.decode(audio=0):
            if _form(frame) != form:
                raise InvalidRequest(f"{name} is damaged: its format changes.")
            decoded += frame.samples
            for piece in resampler.resample(frame):
                parts.append(_mix(piece))
                count += piece.samples
            if count > max_seconds * rate:
                raise _too_long(name, max_seconds)
        if decoded < int(declared * form[1]):
            raise InvalidRequest(
                f"{name} is truncated: it ends before what it declares. Send the whole file."
            )
    parts += [_mix(piece) for piece in resampler.resample(None)]
    samples = np.concatenate([np.empty(0, np.float32), *parts], dtype=np.float32)
    if len(samples) > max_seconds * rate:
        raise _too_long(name, max_seconds)
    if len(samples) < MIN_SECONDS * rate:
        raise InvalidRequest(
            f"{name} lasts {len(samples) / rate:.3f} s; at least {MIN_SECONDS:g} s are needed."
        )
    return samples


def _mix(piece: Any) -> npt.NDArray[np.float32]:
    """[num_samples], the mean of a frame's channels."""
    mean: npt.NDArray[np.float32] = piece.to_ndarray().reshape(piece.samples, -1).mean(axis=1)
    return mean


def _form(source: Any) -> tuple[int, int]:
    """(channels, samples a second) of a stream or a frame."""
    return source.layout.nb_channels, source.sample_rate


def _too_long(name: str, max_seconds: float) -> RequestTooLarge:
    return RequestTooLarge(
        f"{name} lasts longer than the {max_seconds:g} s that are allowed. Send a shorter one, or "
        "its parts."
    )
