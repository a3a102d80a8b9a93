from __future__ import annotations

import pytest
from chiasm_operator.reconcile.diagnosis.moments import is_recent, seconds_between

NOON = "2026-01-02T12:00:00Z"


@pytest.mark.parametrize(
    ("earlier", "seconds"),
    [
        ("2026-01-02T11:59:00Z", 60),
        ("2026-01-02T11:59:00.250001Z", 60),  # as Kubernetes writes an eventTime
        ("2026-01-01T12:00:00Z", 86400),
        ("2026-02-30T12:00:00Z", None),
        ("2026-01-02 12:00", None),
        ("", None),
        (None, None),
    ],
)
def test_seconds_between_two_times(earlier: str | None, seconds: int | None) -> None:
    assert seconds_between(earlier, NOON) == seconds
    assert is_recent(earlier, NOON, 61) is (seconds == 60)
