"""A client's sound becomes samples, or a sentence."""

from __future__ import annotations

import contextlib
import io
import wave

import av
import numpy as np
import pytest
import transformers as tf
from chiasm_contract.config import AudioLimits
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge
from chiasm_worker.modality.audio import (
    CODECS,
    MAX_CHANNELS,
    CanonicalAudio,
    SoundForm,
    decode_audio,
)
from chiasm_worker.models.tiny.clips import write_sound
from hypothesis import given, settings
from hypothesis import strategies as st

FORM = SoundForm(16_000, 30.0)
SOUND = write_sound(1)


def decoded(data: bytes, form: SoundForm = FORM, **limits: float) -> CanonicalAudio:
    return decode_audio(data, AudioLimits.model_validate(limits), form)


def numbers(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 2**15


def flac(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(buffer, "w", format="flac") as target:
        given = source.streams.audio[0]
        stream = target.add_stream("flac", rate=given.rate, layout=given.layout)
        for frame in source.decode(audio=0):
            target.mux(stream.encode(frame))
        target.mux(stream.encode())
    return buffer.getvalue()


def pcm(samples: np.ndarray, rate: int = 16_000) -> bytes:
    """A WAV file of [num_samples, num_channels] 16-bit numbers."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return buffer.getvalue()


def stereo(left: bytes, right: bytes) -> bytes:
    both = np.stack([numbers(left), numbers(right)], axis=1) * 2**15
    return pcm(both.astype("<i2"))


SMALL = {False: write_sound(1, 0.2), True: flac(write_sound(1, 0.2))}


def test_samples_are_what_the_file_says():
    audio = decoded(SOUND)
    assert audio.samples.dtype == np.float32
    np.testing.assert_array_equal(audio.samples, numbers(SOUND).astype(np.float32))


def test_the_same_sound_in_another_format_is_the_same():
    assert decoded(flac(SOUND)).digest == decoded(SOUND).digest
    assert decoded(write_sound(2)).digest != decoded(SOUND).digest


def test_several_channels_become_their_mean():
    mixed = decoded(stereo(SOUND, write_sound(2))).samples
    mean = (numbers(SOUND) + numbers(write_sound(2))) / 2
    np.testing.assert_array_equal(mixed, mean.astype(np.float32))


@pytest.mark.parametrize("kind", ["wav", "flac"])
@pytest.mark.parametrize("rate", [16_000, 44_100])
@pytest.mark.parametrize("num_channels", range(1, MAX_CHANNELS + 1))
def test_as_many_channels_as_are_allowed_can_be_decoded(num_channels: int, rate: int, kind: str):
    """The fault: a number that we allow is one more than a library takes, and ends the process."""
    rng = np.random.default_rng(num_channels)
    samples = rng.integers(-(2**14), 2**14, (rate // 4, num_channels)).astype("<i2")
    data = pcm(samples, rate)
    mixed = decoded(data if kind == "wav" else flac(data)).samples
    if rate == FORM.samples_per_second:
        mean = samples.mean(axis=1) / 2**15
        np.testing.assert_allclose(mixed, mean, atol=1e-6)
    else:
        assert abs(len(mixed) - 4_000) <= 16


def test_other_rates_are_resampled():
    slow = decoded(write_sound(1, 1.0, rate=48_000)).samples
    assert abs(len(slow) - 16_000) <= 32
    spectrum = np.abs(np.fft.rfft(slow[:16_000]))
    same = np.abs(np.fft.rfft(numbers(SOUND)))
    # The three tones stand where they stood: 1 Hz a bin.
    assert set(np.argsort(spectrum)[-3:]) == set(np.argsort(same)[-3:])


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
@pytest.mark.parametrize("data", [SOUND, flac(SOUND)], ids=["wav", "flac"])
def test_a_truncated_sound_is_refused(data: bytes, share: float):
    with pytest.raises(InvalidRequest, match=r"^Sound 2 .*(truncated|no sound)") as error:
        decode_audio(data[: int(len(data) * share)], AudioLimits(), FORM, index=1)
    assert error.value.param == "audios[1]"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is no sound that can be read; WAV and FLAC"),
        (b"ID3\x04" + bytes(200), "is no sound that can be read; WAV and FLAC"),
        (b"RIFF\xff\xff\xff\xffWAVE" + b"\xff" * 300, "cannot be decoded"),
        (b"fLaC" + b"\x00" * 300, "cannot be decoded"),
        (write_sound(1, 0.05), r"lasts 0\.050 s; at least 0\.1 s"),
        (write_sound(1, 0.0), r"lasts 0\.000 s; at least 0\.1 s"),
    ],
    ids=["nothing", "mp3", "wav noise", "flac noise", "a click", "silence of no length"],
)
def test_what_is_no_sound_is_the_clients_fault(data: bytes, message: str):
    with pytest.raises(InvalidRequest, match=message):
        decoded(data)


def wav(codec: str) -> bytes:
    """A WAV file of that encoding."""
    buffer = io.BytesIO()
    with av.open(io.BytesIO(SOUND)) as source, av.open(buffer, "w", format="wav") as target:
        stream = target.add_stream(codec, rate=16_000, layout="mono")
        context = stream.codec_context
        fitting = av.AudioResampler(context.format, rate=16_000, frame_size=context.frame_size)
        for frame in (*source.decode(audio=0), None):
            for piece in fitting.resample(frame):
                target.mux(stream.encode(piece))
        target.mux(stream.encode())
    return buffer.getvalue()


@pytest.mark.parametrize("codec", ["adpcm_ms", "adpcm_ima_wav", "mp2"])
def test_a_container_of_ours_with_another_codec_is_refused(codec: str):
    """The fault: the file's first bytes decide, and what is inside may be anything."""
    with pytest.raises(InvalidRequest, match=f"^Sound 1 is encoded as {codec}; FLAC and WAV with"):
        decoded(wav(codec))


@pytest.mark.parametrize("codec", sorted(CODECS - {"flac"}))
def test_what_recorders_write_is_heard(codec: str):
    samples = decoded(wav(codec)).samples
    reference = numbers(SOUND)
    assert len(samples) == len(reference)
    # 8 bits, of which A-law and mu-law spend most on what is quiet.
    assert np.abs(samples - reference).max() < 0.02


@given(
    is_flac=st.booleans(),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=4),
    kept=st.floats(0, 1),
)
@settings(max_examples=150)
def test_spoilt_files_are_sounds_or_the_clients_fault(
    is_flac: bool, changes: list[tuple[int, int]], kept: float
):
    data = bytearray(SMALL[is_flac])
    for place, mask in changes:
        data[place % len(data)] ^= mask
    audio = None
    with contextlib.suppress(ClientFault):
        audio = decoded(bytes(data[: round(len(data) * kept)]))
    assert audio is None or (len(audio.samples) > 0 and np.isfinite(audio.samples).all())


def test_formats_beyond_any_recorder_are_refused():
    samples = np.zeros((16_000, 9), "<i2")
    for data, said in (
        (pcm(samples[:, :1], rate=200_000), "1 channels at 200000 samples a second"),
        (pcm(samples[:, :1], rate=3_000), "1 channels at 3000 samples a second"),
        (pcm(samples), "9 channels at 16000 samples a second"),
    ):
        with pytest.raises(InvalidRequest, match=f"has {said}; up to 8 channels at 4000 to 192000"):
            decoded(data)
    assert len(decoded(pcm(samples[:, :8])).samples) == 16_000


def test_limits():
    with pytest.raises(RequestTooLarge, match=r"has 32044 bytes; at most 2048"):
        decoded(SOUND, max_bytes=2048)
    with pytest.raises(RequestTooLarge, match=r"lasts longer than the 0\.5 s"):
        decoded(SOUND, max_seconds=0.5)


def test_what_the_model_would_drop_is_refused():
    form = SoundForm.of(tf.WhisperFeatureExtractor(chunk_length=2))
    assert form == SoundForm(16_000, 2.0)
    assert len(decoded(write_sound(1, 2.0), form).samples) == 32_000
    with pytest.raises(RequestTooLarge, match="lasts longer than the 2 s"):
        decoded(write_sound(1, 2.01), form)
