"""Which revision answers a request: abort, then what the client chooses, then pin, then share.

Abort is a plan without a canary. A choice by header or cookie is nginx's: `always`, `never`, any
other value is none; the header goes before the cookie. Pins are of one pair of revisions: another
pair, or another compute_fp of one of them, starts without any, so that nothing outlives an abort or
a promotion. Where two sources disagree about a pin (what the client sends, what is remembered),
stable is right: a conversation that has been moved there once does not come back. A later turn
whose pin is lost goes to stable. Between revisions of one compute_fp, whose cached vectors are the
same, pins are soft: a share of nothing or of all takes every conversation along.

Where a gateway divides, it has drawn already: behind an override, this pod answers what reaches it
and remembers nothing.

Must not know: clocks, files, HTTP beyond the headers' names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from chiasm_contract.messages import ChatMessage
from chiasm_contract.names import CONVERSATION_HEADER, ROUTE_HEADER, ROUTED_BY_GATEWAY
from chiasm_contract.traffic import WHOLE, Role, TrafficPlan, Version

from chiasm_sidecar.traffic import conversations
from chiasm_sidecar.traffic.counting import Books
from chiasm_sidecar.traffic.pins import Pins
from chiasm_sidecar.traffic.splitter import Splitter, phase_of

Reason = Literal["only", "override", "pin", "lost", "share", "gateway"]


@dataclass(frozen=True)
class Asked:
    """What of a request decides; `files` are in the order in which the conversation shows them."""

    scope_fp: str
    headers: Mapping[str, str]
    messages: Sequence[ChatMessage]
    files: Sequence[bytes]
    fresh_name: str  # for a conversation that has none


@dataclass(frozen=True)
class Place:
    """Where a request may be answered; no address: here."""

    revision: str
    address: str | None


@dataclass(frozen=True)
class Route:
    """Where one request goes: first choice first, then who answers in its stead."""

    plan: TrafficPlan
    places: tuple[Place, ...]
    reason: Reason
    name: str | None = None  # of its conversation, as answers tell it
    key: bytes | None = None  # what it is pinned by from now on
    opening: bytes | None = None  # by this and its answer, once there is one

    def role(self, revision: str) -> Role | None:
        """What `revision` is in the plan; None for one that is neither."""
        if revision == self.plan.stable.revision:
            return "stable"
        canary = self.plan.canary
        return "canary" if canary is not None and revision == canary.revision else None

    def header(self, revision: str) -> str | None:
        """What an answer of `revision` tells the client to send next time."""
        return None if self.name is None else conversations.header_of(self.name, revision)


@dataclass(frozen=True)
class _Turn:
    """What one request says of its conversation."""

    name: str | None
    said: str | None = None  # the revision that an answer named
    key: bytes | None = None  # what its pin is found by
    opening: bytes | None = None  # of a first turn, which has no key before its answer
    is_later: bool = False


class Router:
    """The decisions of one sidecar of revision `own`, whose pod is called `member`."""

    def __init__(self, own: str, member: str, books: Books) -> None:
        self._own = own
        self._member = member
        self._books = books
        self.pins = Pins()
        self.plan: TrafficPlan | None = None
        self._draws = Splitter(phase_of(member, ()))
        self._mirrors = Splitter(phase_of(member, ()))

    def take(self, plan: TrafficPlan) -> None:
        """Follow `plan` from now on."""
        before, self.plan = self.plan, plan
        phase = phase_of(self._member, plan.members)
        if before is None or not _same_pair(before, plan):
            self.pins.clear()
            self._draws, self._mirrors = Splitter(phase), Splitter(phase)
        for splitter in (self._draws, self._mirrors):
            splitter.rephase(phase)
        if before is None or before.window != plan.window:
            self._books.start_window()

    def route(self, asked: Asked, now: float) -> Route | None:
        """Where this request goes; None without a plan: it is answered here.

        Raises: InvalidRequest for a conversation header that cannot be one.
        """
        plan = self.plan
        if plan is None:
            return None
        header = asked.headers.get(CONVERSATION_HEADER)
        name, said = (None, None) if header is None else conversations.parse_header(header)
        if plan.canary is None:
            return self._to(plan, plan.stable, "only", _Turn(name))
        sticky = plan.sticky and not self._gateway_drew(plan, asked.headers)
        turn = _turn(asked, name, said) if sticky else _Turn(name)
        version, reason = self._choose(plan, plan.canary, asked, turn, now)
        if turn.key is not None:
            self.pins.pin(turn.key, version.revision, now + plan.sticky_seconds)
        return self._to(plan, version, reason, turn)

    def _choose(
        self, plan: TrafficPlan, canary: Version, asked: Asked, turn: _Turn, now: float
    ) -> tuple[Version, Reason]:
        chosen = _override(plan, asked.headers)
        if chosen is not None:
            return chosen, "override"
        if self._gateway_drew(plan, asked.headers):
            return (canary if canary.revision == self._own else plan.stable), "gateway"
        remembered = None if turn.key is None else self.pins.find(turn.key, now)
        known = {turn.said, remembered} & {plan.stable.revision, canary.revision}
        if known:
            pinned = plan.stable if plan.stable.revision in known else canary
            return _soften(plan, canary, pinned), "pin"
        if turn.is_later:
            return plan.stable, "lost"
        return self._draw(plan, canary), "share"

    def _gateway_drew(self, plan: TrafficPlan, headers: Mapping[str, str]) -> bool:
        """Whether the share is kept already; for a moment the plan and the route may disagree."""
        return ROUTED_BY_GATEWAY in (headers.get(ROUTE_HEADER), plan.divided_by)

    def _draw(self, plan: TrafficPlan, canary: Version) -> Version:
        version = canary if self._draws.draw(plan.share) else plan.stable
        self._books.drew(version.revision)
        return version

    def mirrors(self, plan: TrafficPlan) -> bool:
        """Whether this repeatable request is to be asked of the canary too."""
        return plan.canary is not None and plan.mirror > 0 and self._mirrors.draw(plan.mirror)

    def moved(self, route: Route, revision: str, now: float) -> list[bytes]:
        """Another revision than the first choice answers: its conversation stays there. Returns the
        keys that are pinned."""
        if route.key is None or not self._follows(route):
            return []
        self.pins.pin(route.key, revision, now + route.plan.sticky_seconds)
        return [route.key]

    def answered(
        self, route: Route, revision: str, answers: Sequence[str], now: float
    ) -> list[bytes]:
        """Remember a first turn by its answers; returns the keys that are pinned by them."""
        if route.opening is None or not self._follows(route):
            return []
        stable, keys = route.plan.stable.revision, []
        for answer in answers:
            key = conversations.key_of_content(route.opening, answer)
            if self.pins.find(key, now) != stable:
                self.pins.pin(key, revision, now + route.plan.sticky_seconds)
                keys.append(key)
        return keys

    def heard(self, pins: Mapping[bytes, str], now: float) -> None:
        """Another sidecar pinned these; what is of another pair of revisions is nothing here."""
        plan = self.plan
        if plan is None or plan.canary is None:
            return
        stable, canary = plan.stable.revision, plan.canary.revision
        for key, revision in pins.items():
            moved = revision == stable
            if moved or (revision == canary and self.pins.find(key, now) != stable):
                self.pins.pin(key, revision, now + plan.sticky_seconds)

    def _follows(self, route: Route) -> bool:
        """Whether the pair that a route was made for is still the plan's."""
        return self.plan is not None and _same_pair(self.plan, route.plan)

    def _to(self, plan: TrafficPlan, version: Version, reason: Reason, turn: _Turn) -> Route:
        places = tuple(self._places(plan, version))
        return Route(plan, places, reason, turn.name, turn.key, turn.opening)

    def _places(self, plan: TrafficPlan, first: Version) -> Iterator[Place]:
        canary = None if plan.canary is None else plan.canary.revision
        for version in dict.fromkeys((first, plan.stable)):
            here = version.revision == self._own
            yield Place(version.revision, None if here else version.address)
            if here:
                return
        if self._own != canary:  # Of neither revision: a pod that will go answers before nobody.
            yield Place(self._own, None)


def _turn(asked: Asked, name: str | None, said: str | None) -> _Turn:
    later = conversations.has_answer(asked.messages)
    if name is not None:
        key = conversations.key_of_name(asked.scope_fp, name)
        return _Turn(name, said, key, is_later=later or said is not None)
    opening = conversations.opening_of(asked.scope_fp, asked.messages, asked.files)
    if not later:
        return _Turn(asked.fresh_name, opening=opening)
    key = conversations.key_of_content(opening, conversations.first_answer(asked.messages))
    return _Turn(asked.fresh_name, key=key, is_later=True)


def _same_pair(one: TrafficPlan, other: TrafficPlan) -> bool:
    pairs = ((one.stable, other.stable), (one.canary, other.canary))
    return all(
        (a is None and b is None)
        or (a is not None and b is not None and a.revision == b.revision and _may_be_same(a, b))
        for a, b in pairs
    )


def _may_be_same(one: Version, other: Version) -> bool:
    """Before a pod has reported, a compute_fp is not known; afterwards it is a fact."""
    return None in (one.compute_fp, other.compute_fp) or one.compute_fp == other.compute_fp


def _soften(plan: TrafficPlan, canary: Version, pinned: Version) -> Version:
    if plan.stable.compute_fp is None or plan.stable.compute_fp != canary.compute_fp:
        return pinned
    return {0: plan.stable, WHOLE: canary}.get(plan.share, pinned)


def _override(plan: TrafficPlan, headers: Mapping[str, str]) -> Version | None:
    """What the client chooses, if it does."""
    rule = plan.override
    given = headers.get(rule.header) if rule.header else None
    if given is not None and rule.header_value is not None:
        given = "always" if given == rule.header_value else None
    choices = {"always": plan.canary, "never": plan.stable}
    if given in choices:
        return choices[given]
    if not rule.cookie:
        return None
    return choices.get(_cookie(headers.get("cookie", ""), rule.cookie))


def _cookie(header: str, name: str) -> str:
    for pair in header.split(";"):
        key, _, value = pair.strip().partition("=")
        if key == name:
            return value.strip().strip('"')
    return ""
