"""What the annotations that steer a rollout may say."""

from __future__ import annotations

import pytest
from chiasm_contract import names, rollout_annotations
from chiasm_contract.traffic import Override

WEIGHT = names.ANNOTATION_CANARY_WEIGHT
ACTION = names.ANNOTATION_ROLLOUT_ACTION
HEADER = names.ANNOTATION_CANARY_BY_HEADER
VALUE = names.ANNOTATION_CANARY_BY_HEADER_VALUE
COOKIE = names.ANNOTATION_CANARY_BY_COOKIE


@pytest.mark.parametrize(
    ("text", "parts"), [("0", 0), ("5", 500), ("2.5", 250), ("0.25", 25), ("100", 10_000)]
)
def test_a_weight_is_parts_of_a_whole(text: str, parts: int) -> None:
    assert rollout_annotations.manual_weight({WEIGHT: text}) == parts


def test_auto_and_nothing_are_no_weight() -> None:
    assert rollout_annotations.manual_weight({WEIGHT: "auto"}) is None
    assert rollout_annotations.manual_weight({}) is None


@pytest.mark.parametrize("text", ["", "-1", "101", "0.001", "5%", "NaN", "1e1", "five", "٥", " 5"])
def test_a_wrong_weight_is_named_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="0 to 100") as raised:
        rollout_annotations.manual_weight({WEIGHT: text})
    assert repr(text) in str(raised.value)
    assert [fault.annotation for fault in rollout_annotations.faults({WEIGHT: text})] == [WEIGHT]


@pytest.mark.parametrize("word", rollout_annotations.ACTIONS)
def test_the_actions(word: str) -> None:
    for revision in ("", "v2-0123456789"):
        text = f"{word}:{revision}" if revision else word
        asked = rollout_annotations.action({ACTION: text})
        assert asked == rollout_annotations.Action(text, word, revision)
    assert not rollout_annotations.faults({ACTION: word})


def test_another_action_is_named_with_those_there_are() -> None:
    (fault,) = rollout_annotations.faults({ACTION: "rollback"})
    assert fault.message == (
        "'rollback' is no action; allowed are pause, resume, promote, abort, retry, each also with "
        ":REVISION or :REVISION:ANYTHING behind it, up to 128 characters in all."
    )


@pytest.mark.parametrize("name", [WEIGHT, ACTION, HEADER, VALUE, COOKIE])
def test_of_a_long_value_only_the_beginning_is_told(name: str) -> None:
    """It stands in the status and in events; an annotation may hold 256 KiB."""
    for fault in rollout_annotations.faults(
        {HEADER: "x-canary", name: "promote:a:" + "é" * 10_000}
    ):
        assert fault.annotation == name
        assert len(fault.message) < 300
    assert rollout_annotations.unreadable({ACTION: "promote:a:" + "b" * 119})
    assert not rollout_annotations.unreadable({ACTION: "promote:a:" + "b" * 118})


def test_an_override() -> None:
    given = {HEADER: "x-canary", VALUE: "beta", COOKIE: "canary"}
    assert rollout_annotations.override(given) == Override(
        header="x-canary", header_value="beta", cookie="canary"
    )
    assert rollout_annotations.override({}) == Override()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({HEADER: "x canary"}, "not the name of an HTTP header"),
        ({HEADER: "x" * 129}, "not the name of an HTTP header"),
        ({HEADER: "Authorization"}, "a meaning of its own"),
        ({HEADER: names.REVISION_HEADER}, "a meaning of its own"),
        ({VALUE: "beta"}, f"only beside {HEADER}"),
        ({HEADER: "x-canary", VALUE: "a b"}, "is no header's value"),
        ({COOKIE: "a;b"}, "not the name of a cookie"),
    ],
)
def test_an_override_that_cannot_be_followed(given: dict[str, str], words: str) -> None:
    (fault,) = rollout_annotations.faults(given)
    assert words in fault.message
    followed = rollout_annotations.override(given).model_dump()
    assert not {name for name, value in followed.items() if value == given[fault.annotation]}


@pytest.mark.parametrize("given", [{HEADER: "x canary", VALUE: "a"}, {HEADER: "x", VALUE: "a b"}])
def test_a_header_and_its_value_are_followed_together_or_not_at_all(given: dict[str, str]) -> None:
    """With the value left out the header would mean something else: `always` and `never`."""
    assert rollout_annotations.override({**given, COOKIE: "c"}) == Override(cookie="c")


def test_a_header_of_our_own_is_no_choice() -> None:
    (fault,) = rollout_annotations.faults({HEADER: names.ROUTE_HEADER})
    assert "a meaning of its own" in fault.message


def test_a_misspelt_annotation_is_told_the_right_one() -> None:
    (fault,) = rollout_annotations.faults({"chiasm.dev/canary-wieght": "5"})
    assert "Did you mean chiasm.dev/canary-weight?" in fault.hint


def test_annotations_of_others_are_not_looked_at() -> None:
    assert not rollout_annotations.faults({"example.com/canary-weight": "much"})


def test_every_name_is_either_a_persons_or_the_operators() -> None:
    """A new annotation must be put into `KNOWN`, or among those that only children carry."""
    on_children = {
        names.ANNOTATION_APPLIED,
        names.ANNOTATION_TRAFFIC_EPOCH,
        names.ANNOTATION_CONFIG_RESTART,
        names.ANNOTATION_CONFIG_APPROVAL,
    }
    every = {value for name, value in vars(names).items() if name.startswith("ANNOTATION_")}
    assert set(rollout_annotations.KNOWN) == every - on_children
