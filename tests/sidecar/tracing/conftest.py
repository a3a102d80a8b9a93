"""A collector."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sidecar.tracing.collector import Collector, collecting


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as running:
        yield running
