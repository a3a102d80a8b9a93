"""The plan of cross-attention gives each row the vectors that it sees, each of them once."""

from __future__ import annotations

from chiasm_worker.kernels.cross_attention.plan import Reader, Seen, Shape, plan
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def items(draw: st.DrawFn) -> Seen:
    """An item, of which a few rows see a part."""
    size = draw(st.integers(1, 40))
    start = draw(st.integers(0, 30))
    return Seen(size, draw(st.integers(0, size)), start, start + draw(st.integers(0, 40)))


readers = st.builds(
    Reader, st.integers(0, 20), st.integers(1, 25), st.lists(items(), min_size=1, max_size=3)
)
shapes = st.builds(Shape, st.integers(1, 4), st.integers(5, 12), st.integers(1, 16))


def expected(reader: Reader, position: int) -> set[tuple[int, int]]:
    """(item, vector) that the row at a position sees, in words."""
    seen = {
        (index, vector)
        for index, item in enumerate(reader.items)
        if item.start <= position < item.end
        for vector in range(item.num_visible)
    }
    everything = {(i, v) for i, item in enumerate(reader.items) for v in range(item.num_vectors)}
    return seen or everything


@given(st.lists(readers, max_size=3), shapes)
def test_each_row_reads_what_it_sees_once(batch: list[Reader], shape: Shape) -> None:
    made = plan(batch, shape)
    read: dict[int, list[tuple[int, int]]] = {}
    parts: dict[int, list[int]] = {}
    for entries, queries in ((made.few, shape.few_queries), (made.many, shape.many_queries)):
        for source, first, count, start, end, part in entries.tolist():
            assert 0 < count <= queries
            assert start < end
            for row in range(first, first + count):
                read.setdefault(row, []).extend((source, v) for v in range(start, end))
                parts.setdefault(row, []).append(part)
    row = first_item = 0
    for reader in batch:
        for position in range(reader.first, reader.first + reader.num_rows):
            seen = {(first_item + i, v) for i, v in expected(reader, position)}
            assert sorted(read[row]) == sorted(seen)
            count = int(made.num_parts[row])
            assert sorted(parts[row]) == (list(range(count)) if count > 1 else [-1])
            row += 1
        first_item += len(reader.items)
    assert len(made.num_parts) == row
    assert made.max_parts == max([1, *made.num_parts.tolist()])


@given(readers, st.lists(readers, max_size=2), shapes)
def test_a_requests_parts_do_not_depend_on_others(
    reader: Reader, others: list[Reader], shape: Shape
) -> None:
    alone, among = plan([reader], shape), plan([reader, *others], shape)
    for own, all_of_them in ((alone.few, among.few), (alone.many, among.many)):
        assert all_of_them[: len(own)].tolist() == own.tolist()
