"""traceparent as the standard reads it: valid ones are taken apart, all others count as absent."""

from __future__ import annotations

import pytest
from chiasm_contract.trace_context import TraceContext, parse
from hypothesis import given
from hypothesis import strategies as st

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

ids = st.integers(1, 2**64 - 1)


@given(st.integers(1, 2**128 - 1), ids, st.integers(0, 255))
def test_what_was_written_is_read(trace: int, span: int, flags: int) -> None:
    context = TraceContext(f"{trace:032x}", f"{span:016x}", flags)
    assert parse({"traceparent": context.header}) == context
    assert context.sampled == bool(flags % 2)
    assert TraceContext.from_bytes(context.to_bytes()) == context._replace(flags=1)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"01-{TRACE}-{SPAN}-01more",
    ],
)
def test_malformed_counts_as_absent(header: str) -> None:
    assert parse({"traceparent": header}) is None


@given(st.text(max_size=80))
def test_any_text_is_read_or_ignored(header: str) -> None:
    parse({"traceparent": header})


def test_a_later_version_may_say_more() -> None:
    context = parse({"traceparent": f"01-{TRACE}-{SPAN}-03-more", "tracestate": "a=b"})
    assert context == TraceContext(TRACE, SPAN, 3, "a=b")


def test_too_long_a_state_is_left_out() -> None:
    context = parse({"traceparent": f"00-{TRACE}-{SPAN}-00", "tracestate": "a=" + "b" * 600})
    assert context is not None
    assert context.state == ""


@pytest.mark.parametrize("data", [b"", b"\0" * 24, b"x" * 23, b"\0" * 16 + b"x" * 8])
def test_bytes_that_name_no_span(data: bytes) -> None:
    assert TraceContext.from_bytes(data) is None
