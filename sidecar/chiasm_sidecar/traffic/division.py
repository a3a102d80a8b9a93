"""All that a sidecar does about revisions, put together: follows the plan, says where a request
goes, counts what became of it, and reports.

A plan that cannot be followed changes nothing: the last good one stays in force, the report and a
line in the log say why. So does a file that is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path

from chiasm_contract.clients import DEFAULTS, ClientSettings
from chiasm_contract.config import SidecarConfig
from chiasm_contract.errors import Misdirected
from chiasm_contract.names import REVISION_HEADER
from chiasm_contract.sampling import Sampling
from chiasm_contract.traffic import Role, TrafficPlan, TrafficReport

from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.traffic import plan as plans
from chiasm_sidecar.traffic import source
from chiasm_sidecar.traffic.counting import Attempt, Books
from chiasm_sidecar.traffic.handover import (
    OF_CANARY,
    OF_LAST,
    OF_STABLE,
    FoundFaulty,
    Full,
    Handover,
    NotAnswered,
)
from chiasm_sidecar.traffic.observer import Observed
from chiasm_sidecar.traffic.routing import Asked, Place, Route, Router
from chiasm_sidecar.traffic.shadows import Shadow, Shadows, is_repeatable
from chiasm_sidecar.traffic.sharing import Sharing, others

log = logging.getLogger("chiasm.sidecar.traffic")

_INTERVAL_SECONDS = 0.5
# Of a file that could not be read: no stamp, so that it is read again.
_UNREAD = object()


@dataclass
class Given:
    """To which revision a request has been given, and what is seen of its answer."""

    route: Route
    place: Place
    attempt: Attempt
    observed: Observed = field(default_factory=Observed)
    shadow: Shadow | None = None
    # Who has refused the request before: wrongly, if it is answered here.
    doubted: Given | None = None

    @property
    def taken(self) -> tuple[int, ...]:
        """Which answers of another sidecar the client gets as they are."""
        if self.place is self.route.places[-1]:
            return OF_LAST
        return OF_CANARY if self.route.role(self.place.revision) == "canary" else OF_STABLE

    @property
    def conversation(self) -> str | None:
        """What the answer tells the client to send next time."""
        return self.route.header(self.place.revision)

    @property
    def keeps_text(self) -> bool:
        """Whether anybody asks for the answer's words afterwards."""
        return self.shadow is not None or self.route.opening is not None


class Division:
    """Of the requests that reach this sidecar. Use as an async context manager."""

    def __init__(
        self,
        config: SidecarConfig,
        member: str,
        metrics: Metrics,
        clients: ClientSettings = DEFAULTS,
    ) -> None:
        self._own = config.revision
        self._member = member
        self._path: Path | None = config.traffic_file
        self._metrics = metrics
        self._seen: Hashable = None
        self._problem: str | None = None
        self._rejects_before = 0
        self.books = Books()
        self.router = Router(config.revision, member, self.books)
        self.handover = Handover(clients)
        self.shadows = Shadows(self.handover, metrics, config.request_timeout_seconds)
        self.sharing = Sharing(self.handover, metrics, clients.peer_timeout_seconds)
        self._expose()
        self.refresh()

    async def __aenter__(self) -> Division:
        await self.handover.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shadows.end()
        await self.sharing.end()
        await self.handover.__aexit__()

    @property
    def plan(self) -> TrafficPlan | None:
        """What is followed."""
        return self.router.plan

    @property
    def own_role(self) -> Role | None:
        """What this pod's revision is in the plan; None for one that is neither, or no plan."""
        plan = self.plan
        if plan is None:
            return None
        if self._own == plan.stable.revision:
            return "stable"
        return "canary" if plan.canary and self._own == plan.canary.revision else None

    @property
    def needs_worker(self) -> bool:
        """Whether every request is answered by this pod's own worker."""
        return self.plan is None or (
            self.plan.canary is None and self.plan.stable.revision == self._own
        )

    def is_handed_over(self, headers: Mapping[str, str]) -> bool:
        """Whether another sidecar sent this request: it is answered here, whatever the plan says,
        and counted there.

        Raises: Misdirected when it was meant for another revision.
        """
        named = headers.get(REVISION_HEADER)
        if named is None:
            return False
        if not self._own or named != self._own:
            raise Misdirected(
                f"The header {REVISION_HEADER} names another revision than this pod's; leave it "
                "out, it is for sidecars among themselves.",
                param=REVISION_HEADER,
            )
        return True

    def route(self, asked: Asked) -> Route | None:
        """Where a request goes; None without a plan: here, and nobody counts."""
        route = self.router.route(asked, time.monotonic())
        if route is not None and route.reason == "share":
            role = route.role(route.places[0].revision)
            self._metrics.count("chiasm_traffic_new_conversations_total", role=str(role))
        if route is not None and route.key is not None:
            # Told at each turn, so that no sidecar forgets what is still talked about.
            self._tell_canarys(route, route.places[0].revision, [route.key])
        return route

    def heard(self, pins: Mapping[bytes, str]) -> None:
        """Another sidecar says which revisions conversations are with."""
        self.router.heard(pins, time.monotonic())

    def _tell_canarys(self, route: Route, revision: str, keys: list[bytes]) -> None:
        if keys and route.role(revision) == "canary":
            self._tell(route, revision, keys)

    def _tell(self, route: Route, revision: str, keys: list[bytes]) -> None:
        addresses = others(route.plan, self._member)
        self.sharing.tell(addresses, dict.fromkeys(keys, revision))

    def begin(
        self, route: Route, place: Place, modality: str, started: float, doubted: Given | None
    ) -> Given:
        """A request is given to `place`; whoever begins must `reroute` or `end`."""
        given = Given(route, place, self.books.begin(place.revision, modality, started))
        given.doubted = doubted
        if place is not route.places[0] and doubted is None:
            self._move(given)
        return given

    def reroute(self, given: Given, why: NotAnswered) -> Given | None:
        """No answer there, and none seen by the client: the next place is asked. Returns who is
        doubted there."""
        if isinstance(why, FoundFaulty | Full):
            given.attempt.end(HTTPStatus.BAD_REQUEST, None, None)  # of either: refused
            if given.doubted is not None:
                self._judge(given.doubted, None)
            return given
        given.attempt.reroute()
        self._count(given, "rerouted")
        return given.doubted

    def _move(self, given: Given) -> None:
        """Its conversation goes on where it is answered now."""
        keys = self.router.moved(given.route, given.place.revision, time.monotonic())
        if keys:
            self._tell(given.route, given.place.revision, keys)

    def _judge(self, doubted: Given, answered: Given | None) -> None:
        """Whether others would have refused the request as well is known."""
        if answered is None:
            self._count(doubted, "refused")
            return
        doubted.attempt.contradict()
        self._count(doubted, "rerouted")
        self._move(answered)

    def end(self, given: Given, status: int) -> None:
        """The request ended there, for good, with `status` as the client saw it."""
        observed, shadow = given.observed, given.shadow
        outcome = given.attempt.end(status, observed.num_tokens, observed.timing)
        self._count(given, outcome)
        if given.doubted is not None:
            self._judge(given.doubted, given if outcome == "answered" else None)
        is_whole = outcome == "answered" and observed.whole
        if is_whole:
            answers = observed.answers()
            revision = given.place.revision
            keys = self.router.answered(given.route, revision, answers, time.monotonic())
            self._tell_canarys(given.route, revision, keys)
            self._observe(given)
        if shadow is not None and is_whole:
            self.shadows.ask(shadow, observed.answers())
        elif shadow is not None:
            self.shadows.give_back()

    def shadow(
        self, given: Given, sampling: Sampling, body: bytes, headers: Mapping[str, str]
    ) -> None:
        """Have the canary asked the same once this pod has answered, if it is to be."""
        plan, modality = given.route.plan, given.attempt.modality
        if plan.canary is None or given.place.revision != plan.stable.revision:
            return
        if not is_repeatable(sampling) or not self.router.mirrors(plan):
            return
        if self.shadows.take_place(modality, len(body)):
            there = Place(plan.canary.revision, plan.canary.address)
            tally = self.books.tally(plan.canary.revision, modality)
            given.shadow = Shadow(there, body, headers, modality, tally)

    def report(self) -> TrafficReport:
        """For the pod's state."""
        plan = self.plan
        if plan is None:
            return TrafficReport(problem=self._problem)
        revisions = {version.revision for version in (plan.stable, plan.canary) if version}
        rejects = {self._own: self._num_rejects() - self._rejects_before}
        return TrafficReport(
            epoch=plan.epoch,
            window=plan.window,
            problem=self._problem,
            versions=self.books.report(revisions, rejects),
        )

    async def watch(self) -> None:
        """Look for another plan for ever."""
        while self._path is not None:
            await asyncio.sleep(_INTERVAL_SECONDS)
            try:
                self.refresh()
            except Exception:
                log.exception("looking for another plan failed")

    def refresh(self) -> None:
        """Take what is mounted now, if it is another thing than before."""
        if self._path is None:
            return
        seen = source.stamp(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            if seen is None:
                raise plans.PlanRefused(f"{self._path} is gone.")
            if not self._own:
                raise plans.PlanRefused("This sidecar's file names no revision of its own.")
            self._take(plans.parse(source.read(self._path), self.plan))
        except plans.PlanRefused as error:
            if isinstance(error, source.PlanUnread):
                self._seen = _UNREAD
                if str(error) == self._problem:
                    return  # Said already, and looked at twice a second.
            self._problem = str(error)
            self._metrics.count("chiasm_traffic_plan_loads_total", outcome="refused")
            log.error("traffic plan refused", extra={"fields": {"why": self._problem}})

    def _take(self, plan: TrafficPlan) -> None:
        before = self.plan
        self.router.take(plan)
        self._problem = None
        if before is None or before.window != plan.window:
            self._rejects_before = self._num_rejects()
        self._metrics.gauge("chiasm_traffic_plan_epoch").set(plan.epoch)
        self._metrics.count("chiasm_traffic_plan_loads_total", outcome="taken")
        fields = {
            "epoch": plan.epoch,
            "stable": plan.stable.revision,
            "canary": None if plan.canary is None else plan.canary.revision,
            "share": plan.share,
        }
        log.info("traffic plan taken", extra={"fields": fields})

    def _num_rejects(self) -> int:
        """Restored blocks that this pod's guard has refused."""
        return int(
            self._metrics.total("chiasm_kv_version_check_total", op="get_kv", outcome="reject")
        )

    def _count(self, given: Given, outcome: str) -> None:
        role = given.route.role(given.place.revision)
        if role is not None:
            modality = given.attempt.modality
            self._metrics.count(
                "chiasm_traffic_requests_total", role=role, modality=modality, outcome=outcome
            )

    def _observe(self, given: Given) -> None:
        role, timing = given.route.role(given.place.revision), given.observed.timing
        if role is not None and timing is not None:
            self._metrics.observe(
                "chiasm_traffic_first_token_seconds",
                timing.first_token_seconds,
                role=role,
                modality=given.attempt.modality,
            )

    def _expose(self) -> None:
        """Ask these whenever somebody reads the exposition."""
        self._metrics.gauge("chiasm_traffic_pins").set_function(lambda: len(self.router.pins))
        running = self._metrics.gauge("chiasm_traffic_in_flight")
        for role in ("stable", "canary"):
            running.labels(role=role).set_function(partial(self._in_flight, role))

    def _in_flight(self, role: Role) -> int:
        version = None if self.plan is None else getattr(self.plan, role)
        return 0 if version is None else self.books.in_flight[version.revision]
