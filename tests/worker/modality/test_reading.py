"""Whatever kind of file it is, the same faults get the same sentences at the right place."""

from __future__ import annotations

import pytest
from chiasm_contract.config import MediaKind
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge
from chiasm_worker.modality.reading import check_size, reading

NAMES: list[tuple[MediaKind, str]] = [("image", "Picture"), ("video", "Video"), ("audio", "Sound")]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_library_says_nothing_itself(kind: MediaKind, name: str):
    with (
        pytest.raises(InvalidRequest) as caught,
        reading(kind, 1, b"", 10),
    ):
        raise OSError("<_io.BytesIO object at 0x7f0000000000> Errno 5")
    assert str(caught.value) == (
        f"{name} 2 cannot be decoded: it is truncated or damaged. Send the whole file."
    )
    assert caught.value.param == f"{kind}s[1]"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_too_many_bytes_are_refused_before_any_is_read(kind: MediaKind, name: str):
    with (
        pytest.raises(RequestTooLarge, match=f"^{name} 1 has 11 bytes; at most 10") as caught,
        reading(kind, 0, b"x" * 11, 10),
    ):
        pytest.fail("It was read.")
    assert caught.value.param == f"{kind}s[0]"
    with reading(kind, 0, b"x" * 10, 10) as said:
        assert said == f"{name} 1"


@pytest.mark.parametrize(("own", "param"), [(None, "audios[3]"), ("messages", "messages")])
def test_a_readers_own_sentence_stays(own: str | None, param: str):
    with pytest.raises(InvalidRequest, match=r"^It hums\.") as caught, reading("audio", 3, b"", 1):
        raise InvalidRequest("It hums.", param=own)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("size", "fault"),
    [
        ((200, 1), None),
        ((1, 200), None),
        ((201, 1), r"P has 201 x 1 pixels; one side may be at most 200 times the other\."),
        ((1, 201), r"P has 1 x 201 pixels; one side"),
        ((100, 100), None),
        ((101, 100), r"P has 101 x 100 pixels; at most 10000 pixels are allowed"),
        ((0, 5), r"P has 0 x 5 pixels; one side"),
    ],
)
def test_sizes(size: tuple[int, int], fault: str | None):
    if fault is None:
        check_size("P has", *size, 10_000)
        return
    with pytest.raises(ClientFault, match=fault):
        check_size("P has", *size, 10_000)
