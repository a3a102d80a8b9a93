"""The report names what was planted: each operator as the reason of a late token."""

from __future__ import annotations

import pytest
from chiasm_cli.trace import report
from chiasm_cli.trace.report import hot_spots, late_tokens, lines, waits
from chiasm_contract.timeline import ENGINE, Encode, Event, PodRecording, Recording, Row, Step

from tests.cli.trace.recorded import OTHER, R, step, token, whole_pod, worker

QUICK = 0.01
SLOW = 0.08


def after_one_token(*steps: Step, events: tuple[Event, ...] = ()) -> Recording:
    return worker([step(0, 0.0, QUICK, [token()]), *steps], *events)


CASES = {
    report.PREFILL: after_one_token(
        step(1, QUICK, SLOW, [token(), Row(f"{OTHER}#1", 0, 512, False)])
    ),
    report.OWN_PREFILL: after_one_token(step(1, QUICK, SLOW, [Row(f"{R}#0", 0, 41, True)])),
    report.DECODE: after_one_token(step(1, QUICK, SLOW, [token()])),
    report.ENCODE: after_one_token(
        step(
            1, QUICK, SLOW, [token(), Row(f"{OTHER}#1", 0, 2, False)],
            [Encode((f"{OTHER}#1",), "image", QUICK + 0.001, QUICK + 0.07, 99)],
        )
    ),
    report.RESTORE: after_one_token(
        step(1, QUICK + SLOW, QUICK, [token()]),
        events=(Event(OTHER, "restore", QUICK, QUICK + 0.07),),
    ),
    report.SWAP: after_one_token(
        step(1, QUICK + SLOW, QUICK, [token()]),
        events=(Event(ENGINE, "swap", QUICK, QUICK + 0.07),),
    ),
    report.ELSEWHERE: after_one_token(
        step(1, QUICK, SLOW, [token(OTHER)]), step(2, QUICK + SLOW, QUICK, [token()])
    ),
    report.OUTSIDE: after_one_token(step(1, QUICK + SLOW, QUICK, [token()])),
}  # fmt: skip


@pytest.mark.parametrize("reason", CASES)
def test_the_reason_of_a_late_token(reason: str) -> None:
    (late,) = late_tokens(CASES[reason])
    assert (late.reason, late.token) == (reason, 1)
    assert late.seconds > report.JITTER_SECONDS
    assert sum(late.parts.values()) == pytest.approx(late.seconds)
    words = "\n".join(lines("pod", whole_pod().model_copy(update={"worker": CASES[reason]})))
    assert reason in words


def test_tokens_in_time_are_no_finding() -> None:
    steps = [step(n, n * 0.03, 0.03, [token()]) for n in range(20)]
    assert late_tokens(worker(steps)) == []


def test_a_first_token_is_never_late() -> None:
    assert late_tokens(worker([step(0, 0.0, 5.0, [token()])])) == []


def test_the_latest_comes_first_and_choices_are_told_apart() -> None:
    steps = [
        step(0, 0.0, QUICK, [token(R), token(OTHER)]),
        step(1, 0.1, QUICK, [token(R)]),
        step(2, 0.3, QUICK, [token(OTHER)]),
    ]
    found = late_tokens(worker(steps))
    assert [late.choice_id for late in found] == [f"{OTHER}#0", f"{R}#0"]
    assert [late.step for late in found] == [2, 1]


def test_hot_spots_add_up_to_the_time_that_was_spent() -> None:
    recording = whole_pod().worker
    assert recording is not None
    spots = hot_spots(recording)
    assert sum(spot.share for spot in spots) == pytest.approx(1)
    names = [spot.name for spot in spots]
    assert names[0] == "model, steps with prompts"
    assert "encode image" in names
    assert "between steps, with requests waiting" in names
    seconds = {spot.name: spot.seconds for spot in spots}
    assert seconds["encode image"] == pytest.approx(0.49)


def test_time_without_requests_is_nobodys() -> None:
    idle = step(0, 0.0, 0.1, [token()])._replace(num_running=0)
    spots = hot_spots(worker([idle, step(1, 60.0, 0.1, [token()])]))
    assert sum(spot.seconds for spot in spots) == pytest.approx(0.2)


def test_what_requests_wait_for() -> None:
    pod = whole_pod()
    assert pod.worker is not None
    spots = {spot.name: spot.seconds for spot in waits([pod.sidecar, pod.worker])}
    assert spots["queue"] == pytest.approx(0.4)
    assert spots["decode image"] == pytest.approx(0.3)
    assert "answer" not in spots


def test_what_is_missing_is_said() -> None:
    pod = whole_pod()
    away = pod.model_copy(update={"worker": None})
    assert "The worker is away" in "\n".join(lines("pod", away))
    forgotten = pod.sidecar.model_copy(update={"is_whole": False})
    words = "\n".join(lines("pod", pod.model_copy(update={"sidecar": forgotten})))
    assert "forgotten" in words
    idle = worker([])
    assert "nothing was done" in "\n".join(lines("pod", pod.model_copy(update={"worker": idle})))


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ([Event(R, "answer", 1.0, 2.0, {"where": "v1-canary"})], "v1-canary was asked"),
        ([Event(R, "last byte", 1.0, 1.0, {"status": 400})], "The worker was not asked"),
    ],
)
def test_what_its_worker_was_not_asked_is_not_forgotten(noted: list[Event], said: str) -> None:
    """A request that another revision answers, and one that is refused."""
    pod = whole_pod()
    sidecar = pod.sidecar.model_copy(update={"events": tuple(noted)})
    idle = worker([]).model_copy(update={"is_whole": False})
    words = "\n".join(lines("pod", PodRecording(sidecar=sidecar, worker=idle)))
    assert said in words
    assert "forgotten" not in words
    assert "token" not in words.replace("first token", "")
