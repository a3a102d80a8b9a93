"""Places and times that the service keeps account of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from chiasm_contract.errors import InvalidRequest, Overloaded
from chiasm_worker.engine.service import EngineService
from chiasm_worker.equality import Prepared


@pytest.fixture
async def service(prepared: Callable[[str], Prepared]) -> EngineService:
    """One that has seen answers of ten seconds; its thread is not needed."""
    made = EngineService(prepared("qwen3-grouped").engine(max_num_seqs=2, max_waiting_requests=1))
    made._mean_seconds = 10.0
    return made


@pytest.mark.parametrize(
    "fault", [InvalidRequest("too long"), Overloaded("no room")], ids=["faulty", "overloaded"]
)
async def test_what_is_refused_says_nothing_of_how_long_answers_take(
    fault: Exception, service: EngineService
):
    """The fault: a flood of refusals tells everybody to come back in a second."""
    for _ in range(60):
        with pytest.raises(type(fault)), service.admission():
            raise fault
    with service.admission(3), pytest.raises(Overloaded) as caught, service.admission():
        pass
    assert caught.value.retry_after_seconds == 10
    assert service._num_inside == 0


async def test_answers_that_end_tell_how_long_they_take(service: EngineService):
    for _ in range(60):
        with service.admission():
            pass
    assert service._retry_after_seconds() == 1
