"""A picture's way in: what is refused, in which words, and before which work."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import pytest
from chiasm_contract.config import MAX_IMAGE_PIXELS, AudioLimits, ImageLimits, VideoLimits
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge
from chiasm_sidecar.front_door.media import (
    picture_from_url,
    sound_from_base64,
    video_from_url,
)
from PIL import Image

from tests.sidecar.conftest import MP4, WAV, WEBM, data_url, png

LIMITS = ImageLimits(max_bytes=4096, max_pixels=10_000)


def claim(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header claims a size."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    head = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + head + struct.pack(">I", 0) + b"IDAT" + b"\x35\xaf\x06\x1e"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("PNG", "png"), ("JPEG", "jpeg"), ("WEBP", "webp"), ("GIF", "gif"), ("BMP", "bmp")],
)
def test_formats(kind: str, name: str) -> None:
    data = png(32, 24, kind)
    picture = picture_from_url(data_url(data), LIMITS, "p")
    assert (picture.data, picture.format) == (data, name)


def test_a_phones_jpeg_with_further_pictures_behind_it_is_a_jpeg() -> None:
    """The fault: Pillow opens a file as one kind and says that it is another, MPO."""
    buffer = io.BytesIO()
    pictures = [Image.new("RGB", (32, 24), colour) for colour in ("teal", "navy")]
    pictures[0].save(buffer, "MPO", save_all=True, append_images=pictures[1:])
    assert buffer.getvalue()[:3] == png(32, 24, "JPEG")[:3]
    picture = picture_from_url(data_url(buffer.getvalue()), LIMITS, "p")
    assert (picture.data, picture.format) == (buffer.getvalue(), "jpeg")


@pytest.mark.parametrize(
    "opening",
    [
        "data:image/jpeg;base64,",  # the bytes decide, not this
        "DATA:IMAGE/PNG;BASE64,",
        "data:;base64,",
        "data:application/octet-stream;base64,",
        "data:image/png;charset=utf-8;base64,",
    ],
)
def test_openings_of_data_urls(opening: str) -> None:
    url = opening + base64.b64encode(png()).decode()
    assert picture_from_url(url, LIMITS, "p").format == "png"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.org/cat.png", "https addresses of pictures are not fetched"),
        ("HTTP://169.254.169.254/", "http addresses of pictures are not fetched"),
        ("file:///etc/passwd", "file: addresses are not accepted"),
        ("/etc/passwd", "Plain paths and other text are not accepted"),
        ("", "Plain paths"),
        ("data:image/png;base64", "no comma"),
        ("data:image/png,abc", "not base64"),
        ("data:video/mp4;base64,AAAA", "says video/mp4"),
        ("data:image/png;base64,", "holds no picture"),
        ("data:image/png;base64,AA", "cannot be decoded"),
        ("data:image/png;base64,A\\u0041AAA=", "cannot be decoded"),
        ('data:image/png;base64,AAA"', "cannot be decoded"),
        ("data:image/png;base64,AB==", "cannot be decoded"),
        ("data:image/png;base64,AA\nAA", "cannot be decoded"),
        ("data:image/png;base64,AA-_", "cannot be decoded"),
        ("data:image/png;base64,AA==AA==", "cannot be decoded"),
        ("data:image/png;base64,ÄÄÄÄ", "cannot be decoded"),
        ("data:image/png;base64,AAAA", "not a picture that can be read"),
        (data_url(b"%PDF-1.7 and so on"), "not a picture that can be read"),
        (data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "PNG, JPEG, WebP, GIF and BMP"),
        (data_url(png(8, 8, "TIFF")), "PNG, JPEG, WebP, GIF and BMP"),
    ],
)
def test_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        picture_from_url(url, LIMITS, "messages[0]")
    assert words in caught.value.message
    assert caught.value.param == "messages[0]"


def test_too_many_bytes_is_said_before_anything_is_decoded() -> None:
    not_even_base64 = "data:image/png;base64," + "!" * 8000
    with pytest.raises(RequestTooLarge, match="at most 4096"):
        picture_from_url(not_even_base64, LIMITS, "p")


def test_exactly_the_allowed_number_of_bytes() -> None:
    data = png()
    exact = ImageLimits.model_construct(max_bytes=len(data), max_pixels=10_000)
    assert picture_from_url(data_url(data), exact, "p").data == data
    less = ImageLimits.model_construct(max_bytes=len(data) - 3, max_pixels=10_000)
    with pytest.raises(RequestTooLarge):
        picture_from_url(data_url(data), less, "p")


@pytest.mark.parametrize("size", [(101, 100), (20_000, 10_000), (2**31 - 1, 2**31 - 1)])
def test_pixels_are_counted_from_the_header(size: tuple[int, int]) -> None:
    with pytest.raises(RequestTooLarge, match="pixels"):
        picture_from_url(data_url(claim(*size)), LIMITS, "p")


def test_truncated_pictures_pass_here_and_fail_in_the_decoder() -> None:
    data = png(64, 64)
    assert picture_from_url(data_url(data[:-12]), LIMITS, "p").data == data[:-12]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_every_cut_and_flip_is_a_picture_or_the_clients_fault(kind: str) -> None:
    data = png(16, 16, kind)
    spoiled = [data[:length] for length in range(1, len(data))]
    spoiled += [
        data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        for at in range(min(len(data), 120))
        for mask in (0x01, 0x80, 0xFF)
    ]
    num_refused = 0
    for candidate in spoiled:
        try:
            picture_from_url(data_url(candidate), LIMITS, "p")
        except ClientFault:
            num_refused += 1
    assert num_refused > 0


def test_the_most_pixels_are_those_that_pillow_takes() -> None:
    assert Image.MAX_IMAGE_PIXELS is not None
    assert 2 * Image.MAX_IMAGE_PIXELS == MAX_IMAGE_PIXELS


@pytest.mark.parametrize(("data", "name"), [(MP4, "mp4"), (WEBM, "webm")])
def test_videos_are_known_by_their_bytes(data: bytes, name: str) -> None:
    for kind in ("video/mp4", "video/webm", "application/octet-stream", ""):
        file = video_from_url(data_url(data, kind), VideoLimits(), "p")
        assert (file.kind, file.param, file.data, file.format) == ("video", "p", data, name)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.org/a.mp4", "https addresses of videos are not fetched"),
        ("file:///etc/passwd", "file: addresses are not accepted; send the video as a data URL"),
        (data_url(MP4, "image/png"), "says image/png; a video is needed: MP4"),
        ("data:video/jpeg;base64,", "holds no video"),
        ("data:video/mp4;base64,AA", "The video's base64 cannot be decoded"),
        (data_url(png(), "video/mp4"), "not a video that can be read; MP4"),
        (data_url(b"#EXTM3U\nhttp://x", "video/mp4"), "not a video that can be read; MP4"),
    ],
)
def test_what_is_no_video_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        video_from_url(url, VideoLimits(), "messages[0]")
    assert words in caught.value.message
    assert caught.value.param == "messages[0]"


def test_sounds_are_known_by_their_bytes() -> None:
    file = sound_from_base64(base64.b64encode(WAV).decode(), AudioLimits(), "p")
    assert (file.kind, file.data, file.format) == ("audio", WAV, "wav")
    flac = base64.b64encode(b"fLaC and so on").decode()
    assert sound_from_base64(flac, AudioLimits(), "p").format == "flac"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data:audio/wav;base64,AAAA", "data is a data URL; send the sound's base64 alone"),
        ("AA-_", "The sound's base64 cannot be decoded"),
        ("", "data is empty; send the sound's base64 alone"),
        (base64.b64encode(b"ID3 and so on").decode(), "not a sound that can be read; WAV and FLAC"),
    ],
)
def test_what_is_no_sound_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sound_from_base64(text, AudioLimits(), "messages[0]")
    assert words in caught.value.message
    assert caught.value.param == "messages[0]"


def test_too_many_bytes_of_videos_and_sounds() -> None:
    with pytest.raises(RequestTooLarge, match="The video has about 6000 bytes; at most 4096"):
        video_from_url("data:video/mp4;base64," + "!" * 8000, VideoLimits(max_bytes=4096), "p")
    with pytest.raises(RequestTooLarge, match="The sound has about 6000 bytes; at most 4096"):
        sound_from_base64("!" * 8000, AudioLimits(max_bytes=4096), "p")
