"""A pass that fails, whatever fails in it: told in the status, and nothing else changes."""

from __future__ import annotations

import asyncio
import copy

import aiohttp
import pytest
from chiasm_contract.conditions import Reason
from chiasm_operator import passes
from chiasm_operator.api import Refused
from chiasm_operator.passes import Pass

from tests.operator.rollout.made_up.world import IMAGES, NAME, NAMESPACE, World


def tell(world: World, error: Exception) -> None:
    one = Pass(world, world, IMAGES, lambda: world.now)  # type: ignore[arg-type]
    asyncio.run(one.tell_failure(NAMESPACE, NAME, error))


def ready(world: World) -> dict[str, str]:
    conditions = world.resource["status"]["conditions"]
    return next(item for item in conditions if item["type"] == "Ready")


def test_a_fault_of_ours_is_told_until_a_pass_succeeds(
    served: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy((served.objects, served.resource["status"]["rollout"]))
    with monkeypatch.context() as patched:
        patched.setattr(passes, "decide", lambda *_: int("out of range"))
        with pytest.raises(ValueError, match="out of range"):
            served.one_pass()
    tell(served, ValueError("Port out of range, with a password in it"))
    said = ready(served)
    assert (said["status"], said["reason"]) == ("Unknown", "OperatorFailed")
    assert "(ValueError)" in said["message"]
    assert "password" not in str(served.resource["status"])
    assert (served.objects, served.resource["status"]["rollout"]) == before
    assert served.events[-1][0] == Reason.OPERATOR_FAILED
    served.settled()
    assert ready(served)["status"] == "True"


def test_a_refusal_that_lasts_is_told_in_the_api_servers_words(served: World) -> None:
    tell(served, Refused(403, "services is forbidden"))
    assert ready(served)["message"] == (
        "The API server refuses what the operator asks (403): services is forbidden"
    )


@pytest.mark.parametrize(
    "error",
    [Refused(409, "another came first"), aiohttp.ServerDisconnectedError(), TimeoutError()],
    ids=repr,
)
def test_what_may_pass_is_not_told(served: World, error: Exception) -> None:
    before = copy.deepcopy(served.resource["status"])
    tell(served, error)
    assert served.resource["status"] == before
