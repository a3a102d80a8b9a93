"""Whatever a person would see is what the model sees; whatever cannot be seen is a sentence."""

from __future__ import annotations

import contextlib
import hashlib
import io
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge
from chiasm_worker.modality.image import STRIP_ROWS, decode_image
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

LIMITS = ImageLimits()


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def seen(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.asarray(decode_image(data, LIMITS).pixels)


@pytest.fixture
def colours() -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8))


def test_equal_pixels_are_one_picture_however_they_were_packed(colours: Image.Image):
    digests = {
        decode_image(data, LIMITS).digest
        for data in (
            encoded(colours),
            encoded(colours, compress_level=0),
            encoded(colours, "BMP"),
            encoded(colours, "WEBP", lossless=True),
            encoded(colours.convert("RGBA")),
        )
    }
    assert len(digests) == 1


def test_the_digest_knows_the_shape():
    wide, high = Image.new("RGB", (32, 16)), Image.new("RGB", (16, 32))
    assert decode_image(encoded(wide), LIMITS).digest != decode_image(encoded(high), LIMITS).digest


def test_one_pixel_makes_another_picture(colours: Image.Image):
    other = colours.copy()
    other.putpixel((29, 19), (1, 2, 3))
    assert (
        decode_image(encoded(colours), LIMITS).digest != decode_image(encoded(other), LIMITS).digest
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_cameras_orientation_is_applied(orientation: int, colours: Image.Image):
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = np.asarray(colours)
    want = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, -1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, 1),
    }[orientation]
    assert np.array_equal(seen(encoded(colours, exif=exif)), want)


def test_transparency_lies_on_white():
    image = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    image.putpixel((0, 0), (200, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 128))
    pixels = seen(encoded(image))
    assert pixels[0, 0].tolist() == [200, 0, 0]
    assert pixels[0, 1].tolist() == [127, 127, 127]
    assert pixels[3, 3].tolist() == [255, 255, 255]


def test_a_palettes_transparent_entry_lies_on_white():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    data = encoded(image, transparency=0)
    assert seen(data).tolist() == [[[255, 255, 255], [200, 100, 50]]]


def test_grey_with_alpha_and_a_transparent_grey():
    image = Image.new("LA", (2, 1), (80, 255))
    image.putpixel((1, 0), (80, 0))
    assert seen(encoded(image)).tolist() == [[[80] * 3, [255] * 3]]
    plain = Image.new("L", (2, 1), 80)
    plain.putpixel((1, 0), 9)
    assert seen(encoded(plain, transparency=9)).tolist() == [[[80] * 3, [255] * 3]]


def test_sixteen_bits_are_scaled_not_clipped():
    values = np.array([[0, 255, 256, 32768, 65535]], dtype=np.uint16)
    assert seen(encoded(Image.fromarray(values)))[0, :, 0].tolist() == [0, 0, 0, 127, 255]


def test_sixteen_bit_colour_keeps_its_high_bytes():
    row = b"\x00" + struct.pack(">6H", 0xFF00, 0x8000, 0x0100, 0, 0xFFFF, 0x7F00)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0))
    data += chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    assert seen(data).tolist() == [[[255, 128, 1], [0, 255, 127]]]


def test_black_and_white_palette_and_cmyk_are_colours():
    assert seen(encoded(Image.new("1", (1, 1), 1))).tolist() == [[[255] * 3]]
    palette = Image.new("P", (1, 1))
    palette.putpalette([7, 8, 9])
    assert seen(encoded(palette)).tolist() == [[[7, 8, 9]]]
    cyan = seen(encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG", quality=95))
    assert cyan[4, 4, 0] < 20
    assert min(cyan[4, 4, 1:]) > 235


def test_of_an_animation_the_first_frame_counts():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert seen(data)[0, 0].tolist() == [255, 0, 0]


def test_of_a_phones_jpeg_with_further_pictures_the_first_counts():
    pictures = [Image.new("RGB", (16, 8), colour) for colour in ("red", "lime")]
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(pictures[0], "MPO", save_all=True, append_images=pictures[1:], exif=exif)
    assert np.array_equal(seen(data), seen(encoded(pictures[0], "JPEG", exif=exif)))
    assert seen(data).shape == (16, 8, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_a_truncated_file_is_refused(kind: str, colours: Image.Image):
    data = encoded(colours, kind)
    with pytest.raises(InvalidRequest, match=r"Picture 3 cannot be decoded: it is truncated"):
        decode_image(data[: len(data) * 2 // 3], LIMITS, index=2)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"<svg/>"])
def test_what_is_no_picture_is_refused(data: bytes):
    with pytest.raises(InvalidRequest, match="one of PNG, JPEG, WEBP, GIF, BMP") as error:
        decode_image(data, LIMITS)
    assert " at 0x" not in str(error.value)


def test_other_formats_are_refused(colours: Image.Image):
    with pytest.raises(InvalidRequest, match="not one of PNG"):
        decode_image(encoded(colours, "TIFF"), LIMITS)


def test_sizes_are_refused_before_anything_is_decoded():
    with pytest.raises(RequestTooLarge, match=r"has 2000 bytes; at most 1024"):
        decode_image(b"x" * 2000, ImageLimits(max_bytes=1024))
    with pytest.raises(RequestTooLarge, match=r"100 x 50 pixels; at most 4000"):
        decode_image(encoded(Image.new("RGB", (100, 50))), ImageLimits(max_pixels=4000))
    header = encoded(Image.new("RGB", (60, 60)))
    bomb = header[:16] + struct.pack(">II", 60_000, 60_000) + header[24:29]
    bomb += struct.pack(">I", zlib.crc32(bomb[12:29])) + header[33:]
    with pytest.raises(RequestTooLarge, match="more pixels than"):
        decode_image(bomb, LIMITS)


def test_a_sliver_is_refused():
    with pytest.raises(InvalidRequest, match="one side may be at most 200 times the other"):
        decode_image(encoded(Image.new("RGB", (402, 2))), LIMITS)
    assert seen(encoded(Image.new("RGB", (400, 2)))).shape == (2, 400, 3)


@pytest.mark.parametrize(("kind", "mode", "num_images"), [
    ("PNG", "RGB", 1), ("JPEG", "RGB", 1), ("PNG", "L", 2),
])  # fmt: skip
def test_pixels_are_copied_only_where_they_change(kind: str, mode: str, num_images: int):
    """The fault: a picture several times in memory on its way to its digest."""
    data = encoded(Image.new(mode, (500, 400)), kind)
    num_bytes = 500 * 400 * 3
    seen(data)
    before = Image.core.get_stats()["new_count"]
    tracemalloc.start()
    try:
        decode_image(data, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    num_strips = -(-400 // STRIP_ROWS)
    assert Image.core.get_stats()["new_count"] - before == num_images + num_strips
    # What Pillow keeps itself is not traced; beside it a strip or two lie ready for the digest.
    assert peak < num_bytes / 2


def test_the_digest_is_that_of_all_pixels_in_order():
    pixels = np.random.default_rng(0).integers(0, 256, (3 * STRIP_ROWS + 5, 7, 3), dtype=np.uint8)
    image = decode_image(encoded(Image.fromarray(pixels)), LIMITS)
    head = b"chiasm.image.rgb8.v1" + struct.pack("<II", 7, len(pixels))
    assert image.digest == hashlib.sha256(head + pixels.tobytes()).digest()


@given(st.data())
def test_damaged_bytes_never_raise_anything_but_a_client_fault(data: st.DataObject):
    whole = bytearray(
        encoded(
            Image.new("RGB", (16, 16), "teal"),
            data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP"])),
        )
    )
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ClientFault):
        assert decode_image(bytes(whole), LIMITS).pixels.mode == "RGB"
