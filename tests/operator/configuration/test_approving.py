"""One pod tries a value first, then all may; whatever comes in between, all end with the last."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.configuration import Approval, SourceReport
from chiasm_operator.reconcile.configuration.approving import approve
from hypothesis import example, given
from hypothesis import strategies as st


def report(
    using: str | None,
    offered: str | None = None,
    refused: str | None = None,
    fault: str | None = None,
) -> SourceReport:
    return SourceReport(name="store", id=using, offered=offered, refused=refused, fault=fault)


def test_what_pods_began_with_is_allowed() -> None:
    assert approve(None, {"a": report("1"), "b": report("1")}) == Approval(id="1")


def test_nothing_is_allowed_before_anybody_has_anything() -> None:
    assert approve(None, {"a": report(None)}) is None


def test_one_pod_goes_first() -> None:
    reports = {"a": report("1", "2"), "b": report("1", "2")}
    assert approve(Approval(id="1"), reports) == Approval(id="2", prover="a")


def test_the_others_wait_for_its_proof() -> None:
    reports = {"a": report("1", "2"), "b": report("1", "2")}
    before = Approval(id="2", prover="a")
    assert approve(before, reports) == before
    assert approve(before, {"a": report("1", "2", "no"), "b": report("1", "2")}) == before


def test_what_was_proved_is_for_all() -> None:
    reports = {"a": report("2"), "b": report("1", "2")}
    assert approve(Approval(id="2", prover="a"), reports) == Approval(id="2")


def test_another_pod_goes_first_where_the_first_is_gone() -> None:
    assert approve(Approval(id="2", prover="a"), {"b": report("1", "2")}) == Approval(
        id="2", prover="b"
    )


def test_a_pod_that_cannot_ask_lets_another_go_first() -> None:
    cut_off = report("1", "2", fault="It cannot be reached.")
    both = {"a": cut_off, "b": report("1", "2")}
    assert approve(Approval(id="1"), both) == Approval(id="2", prover="b")
    assert approve(Approval(id="2", prover="a"), both) == Approval(id="2", prover="b")
    nobody = {"a": cut_off, "b": cut_off}
    assert approve(Approval(id="2", prover="a"), nobody) == Approval(id="2", prover="a")


def test_a_newer_value_takes_the_place_of_one_that_was_refused() -> None:
    reports = {"a": report("1", "3"), "b": report("1", "2")}
    assert approve(Approval(id="2", prover="a"), reports) == Approval(id="3", prover="a")


def test_a_value_that_was_put_back_ends_the_trial() -> None:
    before = Approval(id="2", prover="a")
    assert approve(before, {"a": report("1"), "b": report("1")}) == Approval(id="1")


def test_a_pod_that_began_with_the_new_value_has_proved_it() -> None:
    reports = {"new": report("2"), "b": report("1", "2")}
    assert approve(Approval(id="1"), reports) == Approval(id="2")


def test_what_no_pod_uses_any_more_makes_way_for_what_all_began_with() -> None:
    assert approve(Approval(id="1"), {"a": report("2"), "b": report("2")}) == Approval(id="2")


@dataclass
class Pod:
    """A sidecar as far as this goes: takes what it is shown if it works and it may."""

    shown: int
    using: int | None = None

    def act(self, name: str, approval: Approval | None, bad: set[int]) -> bool:
        """Whether it took something."""
        if self.using == self.shown or self.shown in bad:
            return False
        mine = approval is not None and approval.prover in (None, name)
        allowed = mine and approval is not None and approval.id == str(self.shown)
        if self.using is not None and not allowed:
            return False
        self.using = self.shown
        return True

    def says(self, bad: set[int]) -> SourceReport:
        using = None if self.using is None else str(self.using)
        if self.shown == self.using:
            return report(using)
        refused = "It does not work." if self.shown in bad else None
        return report(using, str(self.shown), refused)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["change", "show", "act", "pass", "restart"]), st.integers(0, 3)),
    max_size=60,
)


@given(ACTIONS, st.sets(st.integers(2, 8), max_size=3))
@example(
    [
        ("change", 0),
        ("show", 0),
        ("restart", 1),
        ("act", 1),
        ("pass", 0),
        ("restart", 1),  # what it has proved is allowed still
        ("act", 0),
    ],
    set(),
)
def test_every_order_of_events_ends_with_the_last_good_value(
    actions: list[tuple[str, int]], bad: set[int]
) -> None:
    pods = {f"pod-{i}": Pod(1, 1) for i in range(4)}
    approval: Approval | None = None
    value = 1
    proved = {1}  # that some pod has used, also one that is gone by now

    def look() -> Approval | None:
        return approve(approval, {name: pod.says(bad) for name, pod in pods.items()})

    for action, which in actions:
        name = f"pod-{which}"
        pod = pods[name]
        match action:
            case "change":
                value += 1
            case "show":
                pod.shown = value
            case "act":
                had_one = pod.using is not None
                if pod.act(name, approval, bad):
                    if had_one and pod.using not in proved:
                        assert approval is not None
                        assert approval.prover == name
                    proved.add(pod.shown)
            case "pass":
                approval = look()
            case "restart":
                pods[name] = Pod(value)
    if value in bad:
        value += 10  # somebody mends it
    for _ in range(12):
        for name, pod in pods.items():
            pod.shown = value
            pod.act(name, approval, bad)
        approval = look()
    assert {pod.using for pod in pods.values()} == {value}
    assert approval == Approval(id=str(value))
