"""Which revision answers, case by case, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from chiasm_contract.errors import InvalidRequest
from chiasm_contract.messages import ChatMessage, ImagePart, TextPart
from chiasm_contract.names import CONVERSATION_HEADER, ROUTE_HEADER
from chiasm_contract.traffic import WHOLE, Override, TrafficPlan, Version
from chiasm_sidecar.traffic.counting import Books
from chiasm_sidecar.traffic.routing import Asked, Route, Router
from starlette.datastructures import Headers

from tests.sidecar.traffic.plans import CANARY, STABLE, plan, without_canary

Turn = tuple[str, str]
FIRST: list[Turn] = [("user", "What is it?")]


def later(answer: str = "A disc.") -> list[Turn]:
    return [*FIRST, ("assistant", answer), ("user", "Which colour?")]


def asked(turns: list[Turn] = FIRST, scope: str = "s" * 64, **headers: str) -> Asked:
    messages: Any = [ChatMessage(role=r, content=(TextPart(text=t),)) for r, t in turns]  # type: ignore[arg-type]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Asked(scope, Headers(named), messages, (), "fresh")


def named(name: str, turns: list[Turn] = FIRST, scope: str = "s" * 64) -> Asked:
    return asked(turns, scope, **{CONVERSATION_HEADER: name})


def router(first: TrafficPlan, own: str = STABLE) -> Router:
    made = Router(own, "pod-0", Books())
    made.take(first)
    return made


def to(made: Router, request: Asked, now: float = 0) -> tuple[str, str]:
    route = taken(made, request, now)
    return route.places[0].revision, route.reason


def taken(made: Router, request: Asked, now: float = 0) -> Route:
    route = made.route(request, now)
    assert route is not None
    return route


def first_answered(made: Router, revision: str, answer: str = "A disc.", now: float = 0) -> Route:
    """A first turn that `revision` got and answered."""
    while (route := taken(made, asked(), now)).places[0].revision != revision:
        made.answered(route, route.places[0].revision, ["Something else."], now)
    made.answered(route, revision, [answer], now)
    return route


def test_without_a_plan_there_is_no_route() -> None:
    assert Router(STABLE, "pod-0", Books()).route(asked(), 0) is None


def test_without_a_canary_all_is_stables() -> None:
    made = router(without_canary())
    assert to(made, asked()) == (STABLE, "only")
    assert taken(made, asked()).header(STABLE) is None
    assert taken(made, named("x@gone")).header(STABLE) == f"x@{STABLE}", "told anew"


def test_who_answers_in_whose_stead() -> None:
    def places(own: str, made: TrafficPlan) -> list[tuple[str, bool]]:
        route = taken(router(made, own), asked())
        return [(place.revision, place.address is None) for place in route.places]

    all_to_canary, none = plan(share=WHOLE), plan(share=0)
    assert places(STABLE, all_to_canary) == [(CANARY, False), (STABLE, True)]
    assert places(STABLE, none) == [(STABLE, True)]
    assert places(CANARY, all_to_canary) == [(CANARY, True)]
    assert places(CANARY, none) == [(STABLE, False)], "the canary takes nothing that is not its own"
    assert places("old", without_canary()) == [(STABLE, False), ("old", True)]
    assert places("old", all_to_canary) == [(CANARY, False), (STABLE, False), ("old", True)]


def test_new_conversations_are_drawn_and_counted() -> None:
    books = Books()
    made = Router(STABLE, "pod-0", books)
    made.take(plan(share=500))
    drawn = [to(made, asked()) for _ in range(40)]
    assert drawn.count((CANARY, "share")) == 2
    counted = books.report({STABLE, CANARY}, {})
    assert [counted[each].new_conversations for each in (STABLE, CANARY)] == [38, 2]
    made.take(plan(2, share=500))
    assert books.report({CANARY}, {})[CANARY].new_conversations == 2, "the same window"
    made.take(plan(3, share=1000, window=2))
    assert books.report({CANARY}, {})[CANARY].new_conversations == 0, "a new window"


@pytest.mark.parametrize("revision", [STABLE, CANARY])
def test_a_conversation_is_recognised_by_its_beginning(revision: str) -> None:
    made = router(plan())
    first_answered(made, revision)
    for _ in range(5):
        expected = (revision, "pin")
        assert to(made, asked(later())) == expected
    assert to(made, asked(later(" A disc.\n"))) == (revision, "pin"), "clients trim"
    assert to(made, asked(later("A square."))) == (STABLE, "lost")
    assert to(made, asked(later(), scope="t" * 64)) == (STABLE, "lost"), "somebody else's"


@pytest.mark.parametrize("revision", [STABLE, CANARY])
def test_a_conversation_is_recognised_by_its_name(revision: str) -> None:
    made = router(plan())
    number = 0
    while to(made, named(f"c{number}"))[0] != revision:
        number += 1
    name = f"c{number}"
    assert {to(made, named(name)) for _ in range(4)} == {(revision, "pin")}
    assert {to(made, named(name, later())) for _ in range(4)} == {(revision, "pin")}
    assert to(made, named(name, later(), scope="t" * 64)) == (STABLE, "lost"), "somebody else's"
    header = taken(made, named(name)).header(revision)
    assert header == f"{name}@{revision}"
    elsewhere = router(plan())
    assert {to(elsewhere, named(header, later())) for _ in range(4)} == {(revision, "pin")}
    assert to(elsewhere, named(header)) == (revision, "pin")


def test_a_lost_pin_never_meets_the_canary() -> None:
    made = router(plan(share=WHOLE))
    assert to(made, asked(later())) == (STABLE, "lost")
    assert to(made, named("x", later())) == (STABLE, "lost")
    assert to(made, named("y@v1-before")) == (STABLE, "lost"), "it has been answered before"


def test_pins_are_forgotten_some_time_after_the_last_turn() -> None:
    made = router(plan(share=WHOLE, sticky_seconds=10))
    first_answered(made, CANARY)
    assert to(made, asked(later()), now=9)[0] == CANARY
    assert to(made, asked(later()), now=18)[0] == CANARY
    assert to(made, asked(later()), now=28) == (STABLE, "lost")


@pytest.mark.parametrize(
    "after",
    [
        without_canary(2, window=2),
        plan(2, canary=Version(revision="v1-third", address="h:1"), share=0, window=2),
        plan(2, canary=Version(revision=CANARY, address="h:1", compute_fp="other"), share=0),
        plan(2, stable=Version(revision=CANARY, address="h:1"), canary=None, share=0),
    ],
    ids=["abort", "another canary", "other weights", "promote"],
)
def test_pins_do_not_outlive_their_pair(after: TrafficPlan) -> None:
    weighed = Version(revision=CANARY, address="h:1", compute_fp="one")
    made = router(plan(share=WHOLE, canary=weighed))
    first_answered(made, CANARY)
    to(made, named("x"))
    made.take(after)
    stable = after.stable.revision
    assert len(made.pins) == 0
    assert to(made, asked(later()))[0] == stable
    assert to(made, named("x", later()))[0] == stable


def test_a_return_of_the_pair_brings_no_pins_back() -> None:
    made = router(plan(share=WHOLE))
    first_answered(made, CANARY)
    made.take(without_canary(2, window=2))
    made.take(plan(3, share=WHOLE, window=3))
    assert to(made, asked(later())) == (STABLE, "lost")


def test_a_smaller_share_moves_no_conversation() -> None:
    made = router(plan(share=WHOLE))
    first_answered(made, CANARY)
    made.take(plan(2, share=0, window=2))
    assert to(made, asked(later())) == (CANARY, "pin")
    assert to(made, asked())[0] == STABLE


def test_pins_between_equal_fingerprints_follow_a_share_of_nothing_or_all() -> None:
    def equal(epoch: int, share: int) -> TrafficPlan:
        fields = {"address": "h:1", "compute_fp": "same"}
        return plan(
            epoch,
            share=share,
            window=epoch,
            stable=Version(revision=STABLE, **fields),
            canary=Version(revision=CANARY, **fields),
        )

    made = router(equal(1, 5000))
    first_answered(made, CANARY)
    assert to(made, asked(later()))[0] == CANARY
    made.take(equal(2, 0))
    assert to(made, asked(later()))[0] == STABLE
    made.take(equal(3, WHOLE))
    assert to(made, asked(later()))[0] == CANARY


def test_one_beginning_on_both_sides_goes_to_stable() -> None:
    made = router(plan())
    for revisions in ((CANARY, STABLE), (STABLE, CANARY)):
        for revision in revisions:
            first_answered(made, revision)
        assert to(made, asked(later())) == (STABLE, "pin")


def test_who_was_moved_to_stable_stays() -> None:
    made = router(plan(share=WHOLE))
    route = taken(made, named("x"))
    made.moved(route, STABLE, 0)
    assert to(made, named("x")) == (STABLE, "pin")
    assert to(made, named(f"x@{CANARY}")) == (STABLE, "pin"), "whatever an older answer said"


def test_what_ends_under_another_pair_pins_nothing() -> None:
    made = router(plan(share=WHOLE))
    named_route, fresh_route = taken(made, named("x")), taken(made, asked())
    made.take(plan(2, canary=Version(revision="v1-third", address="h:1"), window=2))
    assert made.moved(named_route, STABLE, 0) == []
    assert made.answered(fresh_route, CANARY, ["A disc."], 0) == []
    assert len(made.pins) == 0
    made.take(plan(3, share=WHOLE, window=3))
    assert made.moved(named_route, STABLE, 0) != []
    assert made.answered(fresh_route, CANARY, ["A disc."], 0) != []
    assert len(made.pins) == 2, "the routes as such could"


OVERRIDES: list[tuple[Override, dict[str, str], str | None]] = [
    (Override(header="x-canary"), {"x_canary": "always"}, CANARY),
    (Override(header="x-canary"), {"x_canary": "never"}, STABLE),
    (Override(header="x-canary"), {"x_canary": "perhaps"}, None),
    (Override(header="x-canary"), {}, None),
    (Override(header="x-canary", header_value="beta"), {"x_canary": "beta"}, CANARY),
    (Override(header="x-canary", header_value="beta"), {"x_canary": "always"}, None),
    (Override(header="x-canary", header_value="beta"), {"x_canary": "never"}, None),
    (Override(cookie="canary"), {"cookie": "a=b; canary=always"}, CANARY),
    (Override(cookie="canary"), {"cookie": "canary=never; a=b"}, STABLE),
    (Override(cookie="canary"), {"cookie": "xcanary=always"}, None),
    (Override(cookie="canary"), {"cookie": "canary=1"}, None),
    (
        Override(header="x-canary", cookie="canary"),
        {"x_canary": "never", "cookie": "canary=always"},
        STABLE,
    ),
    (
        Override(header="x-canary", cookie="canary"),
        {"x_canary": "perhaps", "cookie": "canary=always"},
        CANARY,
    ),
]


@pytest.mark.parametrize(("rule", "headers", "expected"), OVERRIDES)
@pytest.mark.parametrize("share", [0, WHOLE])
def test_what_a_client_chooses_goes_before_the_share(
    rule: Override, headers: dict[str, str], expected: str | None, share: int
) -> None:
    made = router(plan(share=share, override=rule))
    by_share = CANARY if share else STABLE
    assert to(made, asked(**headers)) == (
        (expected, "override") if expected else (by_share, "share")
    )


def test_a_choice_goes_before_a_pin_and_is_one() -> None:
    made = router(plan(share=0, override=Override(header="x-canary")))
    assert to(made, named("x")) == (STABLE, "share")
    chosen = named("x")
    always = Asked(
        chosen.scope_fp, Headers({**chosen.headers, "x-canary": "always"}), chosen.messages, (), "f"
    )
    assert to(made, always) == (CANARY, "override")
    assert to(made, named("x")) == (CANARY, "pin")


def test_abort_goes_before_a_choice() -> None:
    made = router(without_canary(override=Override(header="x-canary")))
    assert to(made, asked(x_canary="always")) == (STABLE, "only")


def test_without_stickiness_each_request_is_drawn() -> None:
    made = router(plan(sticky=False))
    drawn = [to(made, asked(later())) for _ in range(10)]
    assert drawn.count((CANARY, "share")) == 5
    assert taken(made, asked()).header(STABLE) is None


@pytest.mark.parametrize("value", ["", "a b", "a@", "@b", "a@b@c", "x" * 129, "é"])
def test_a_name_that_is_none(value: str) -> None:
    with pytest.raises(InvalidRequest, match="1 to 128 letters"):
        router(plan()).route(named(value), 0)


def test_files_tell_conversations_apart() -> None:
    made = router(plan(share=WHOLE))

    def shown(file: bytes, *more: ChatMessage) -> Asked:
        first = ChatMessage(role="user", content=(ImagePart(index=0), TextPart(text="What?")))
        return Asked("s" * 64, Headers(), [first, *more], [file], "fresh")

    made.answered(taken(made, shown(b"one")), CANARY, ["A disc."], 0)
    turns = [ChatMessage(role=role, content=(TextPart(text=text),)) for role, text in later()[1:]]  # type: ignore[arg-type]
    assert to(made, shown(b"one", *turns)) == (CANARY, "pin")
    assert to(made, shown(b"two", *turns)) == (STABLE, "lost")


def test_long_texts_are_known_by_their_length_and_both_ends() -> None:
    made = router(plan(share=WHOLE))
    text = "a" * 100_000

    def turns(first: str) -> list[Turn]:
        return [("user", first), *later()[1:]]

    made.answered(taken(made, asked([("user", text)])), CANARY, ["A disc."], 0)
    assert to(made, asked(turns(text))) == (CANARY, "pin")
    middle = f"{text[:50_000]}b{text[50_001:]}"
    assert to(made, asked(turns(middle))) == (CANARY, "pin"), "the middle is not read"
    for other in (f"b{text[1:]}", f"{text[1:]}b", text[1:]):
        assert to(made, asked(turns(other))) == (STABLE, "lost")


def test_pins_of_other_sidecars() -> None:
    made, other = router(plan(share=WHOLE)), router(plan(share=WHOLE))
    keys = made.answered(taken(made, asked()), CANARY, ["A disc."], 0)
    other.heard(dict.fromkeys(keys, "v1-other"), 0)
    assert to(other, asked(later())) == (STABLE, "lost")
    other = router(plan(share=WHOLE))
    other.heard(dict.fromkeys(keys, CANARY), 0)
    assert to(other, asked(later())) == (CANARY, "pin")
    other.heard(dict.fromkeys(keys, STABLE), 0)
    other.heard(dict.fromkeys(keys, CANARY), 0)
    assert to(other, asked(later())) == (STABLE, "pin"), "who was moved does not come back"


def test_mirrors_exactly_its_share() -> None:
    made = router(plan(mirror=2500))
    assert sum(made.mirrors(plan(mirror=2500)) for _ in range(40)) == 10
    assert not any(made.mirrors(without_canary()) for _ in range(40))


def routed(**headers: str) -> Asked:
    """As a gateway sends it to the revision that it chose."""
    return asked(**{ROUTE_HEADER: "gateway"}, **headers)


@pytest.mark.parametrize("divided_by", [None, "gateway"])
@pytest.mark.parametrize("own", [STABLE, CANARY])
def test_what_a_gateway_chose_is_not_divided_again(own: str, divided_by: Any) -> None:
    made = router(plan(share=5000, divided_by=divided_by), own)
    for _ in range(10):
        route = taken(made, routed())
        assert [(place.revision, place.address) for place in route.places] == [(own, None)]
        assert (route.reason, route.header(own), route.key) == ("gateway", None, None)


def test_the_header_of_gateways_says_nothing_else() -> None:
    made = router(plan(share=WHOLE), STABLE)
    assert to(made, asked(**{ROUTE_HEADER: "me"})) == (CANARY, "share")


def test_where_a_gateway_divides_each_pod_answers_what_reaches_it() -> None:
    rule = plan(share=5000, divided_by="gateway", override=Override(cookie="canary"))
    for own, other, word in ((STABLE, CANARY, "always"), (CANARY, STABLE, "never")):
        made = router(rule, own)
        assert to(made, asked()) == (own, "gateway")
        assert to(made, routed(cookie=f"canary={word}")) == (other, "override")
    assert to(router(rule, "v1-old"), asked()) == (STABLE, "gateway")


def test_an_abort_comes_before_what_a_gateway_chose() -> None:
    made = router(without_canary(divided_by="gateway"), CANARY)
    assert to(made, routed()) == (STABLE, "only")
