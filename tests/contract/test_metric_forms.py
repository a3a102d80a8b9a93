"""Who gets which form of metrics."""

from __future__ import annotations

import pytest
from chiasm_contract.metric_forms import OPENMETRICS, PLAIN, form_for, media_type

# What Prometheus 3 sends.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (PROMETHEUS, OPENMETRICS),
        (OPENMETRICS, OPENMETRICS),
        ("Application/OpenMetrics-Text", OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"', OPENMETRICS),
        ("", PLAIN),
        ("*/*", PLAIN),
        (PLAIN, PLAIN),
        ("application/openmetrics-text;q=0", PLAIN),
        ("application/openmetrics-text;q=soon", PLAIN),
        ("application/openmetrics-text;version=9.0.0", PLAIN),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.5", PLAIN),
    ],
)
def test_openmetrics_for_who_asks_for_it(accept: str, form: str) -> None:
    assert form_for(accept) == form


def test_a_media_type_has_no_parameters() -> None:
    assert media_type(OPENMETRICS) == "application/openmetrics-text"
