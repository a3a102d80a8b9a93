"""Faults keep their status and words when they cross from one part to another."""

from __future__ import annotations

import pytest
from chiasm_contract import errors
from chiasm_contract.errors import ErrorBody

FAULTS = [
    errors.InvalidRequest("Bad.", param="messages"),
    errors.UnknownModel("No such model.", param="model"),
    errors.RequestTooLarge("Too large."),
    errors.Overloaded("Busy.", retry_after_seconds=3),
    errors.Unavailable("Starting.", retry_after_seconds=1),
    errors.InvalidRequest("Too long.", code="context_length_exceeded"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.code)
def test_a_fault_survives_the_way(fault: errors.ChiasmError) -> None:
    received = errors.from_body(ErrorBody.model_validate_json(fault.body().model_dump_json()))
    assert type(received) is type(fault)
    assert received.body() == fault.body()


def test_every_client_fault_is_a_4xx_and_no_other_is() -> None:
    def all_of(kind: type[errors.ChiasmError]) -> list[type[errors.ChiasmError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in all_of(child))]

    for kind in all_of(errors.ChiasmError):
        assert (400 <= kind.status < 500) == issubclass(kind, errors.ClientFault), kind


@pytest.mark.parametrize(("status", "kind"), [(418, errors.ClientFault), (599, errors.ChiasmError)])
def test_an_unknown_status_keeps_its_class(status: int, kind: type[errors.ChiasmError]) -> None:
    assert type(errors.from_body(ErrorBody(status=status, code="odd", message="?"))) is kind
