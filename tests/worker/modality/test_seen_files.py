"""What is remembered of files is bounded, right, and what was wanted last."""

from __future__ import annotations

import pytest
from chiasm_worker.media_identity import MediaIdentity
from chiasm_worker.modality.media import MediaItem
from chiasm_worker.modality.seen_files import FileKey, SeenFiles
from hypothesis import given
from hypothesis import strategies as st


def item(number: int, length: int) -> MediaItem:
    return MediaItem(MediaIdentity("image", bytes([number]) * 32, (1,), 1), "x" * length, 7)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans()), max_size=60),
    st.integers(1, 5),
    st.integers(10, 80),
)
def test_it_is_the_files_that_were_wanted_last(
    steps: list[tuple[int, int, bool]], max_files: int, max_characters: int
):
    """Against a list of all that was wanted, in order, cut to what there is room for."""
    seen = SeenFiles(max_files, max_characters)
    wanted: list[tuple[FileKey, MediaItem]] = []
    for number, length, is_new in steps:
        key = FileKey.of("s", "image", 1, bytes([number]))
        known = next((item for other, item in wanted if other == key), None)
        if is_new:
            known = item(number, length)
            seen.remember(key, known)
        else:
            assert seen.find(key) == known
        wanted = [pair for pair in wanted if pair[0] != key]
        if known is not None:
            wanted.append((key, known))
        while (
            len(wanted) > max_files
            or sum(len(each.placeholder) for _, each in wanted) > max_characters
        ):
            del wanted[0]
        assert len(seen) == len(wanted)
        assert seen.num_characters == sum(len(each.placeholder) for _, each in wanted)


@pytest.mark.parametrize(
    "other",
    [
        FileKey.of("s", "image", 1, b"another file"),
        FileKey.of("s", "image", 2, b"a file"),
        FileKey.of("s", "video", 1, b"a file"),
        FileKey.of("another", "image", 1, b"a file"),
    ],
)
def test_all_that_the_item_depends_on_is_in_the_key(other: FileKey):
    seen = SeenFiles()
    seen.remember(FileKey.of("s", "image", 1, b"a file"), item(1, 3))
    assert seen.find(FileKey.of("s", "image", 1, b"a file")) == item(1, 3)
    assert seen.find(other) is None
