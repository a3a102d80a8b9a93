"""A recording survives, and no piece of it takes long."""

from __future__ import annotations

import json

from chiasm_contract.recording_json import PIECE_ENTRIES, encoded, pieces
from chiasm_contract.timeline import Anchor, Encode, Event, Recording, Row, Step
from hypothesis import given
from hypothesis import strategies as st

ANCHOR = Anchor(clock_seconds=1.5, wall_ns=2 * 10**18)
STEP = Step(
    1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5,
    (Row("a#1", 0, 16, False),), (Encode(("a#1",), "image", 0.1, 0.2, 16),), 1, 0, 3,
)  # fmt: skip


def recording(num_events: int, num_steps: int) -> Recording:
    return Recording(
        part="worker",
        anchor=ANCHOR,
        events=tuple(
            Event("a", "decode", float(number), number + 0.5, {"modality": "image", "pixels": 9})
            for number in range(num_events)
        ),
        steps=tuple(STEP._replace(number=number) for number in range(num_steps)),
        num_blocks=64,
        is_whole=False,
    )


@given(st.integers(0, 3 * PIECE_ENTRIES), st.integers(0, 3 * PIECE_ENTRIES))
def test_a_recording_survives(num_events: int, num_steps: int) -> None:
    known = recording(num_events, num_steps)
    assert Recording.model_validate_json(encoded(known)) == known


def test_no_piece_holds_more_than_a_few_entries() -> None:
    known = recording(10 * PIECE_ENTRIES, 10 * PIECE_ENTRIES)
    most = max(len(json.dumps(entry)) for entry in (known.events[0], known.steps[0]))
    assert max(map(len, pieces(known))) <= PIECE_ENTRIES * (most + 16)
