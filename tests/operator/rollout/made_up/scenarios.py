"""What happens to a resource in its life: each scenario is a list of things that people do, and
behind each of them the world comes to rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chiasm_contract.traffic import Counts

from tests.operator.rollout.made_up.world import World

Stage = Callable[[World], None]

STEPS: list[dict[str, Any]] = [
    {"setCanaryScale": {"replicas": 2}},
    {"setWeight": "5"},
    {"analysis": {"seconds": 20}},
    {"setWeight": 50},
    {"pause": {"seconds": 10}},
]


def spec(revision: int, replicas: int = 3, **rollout: Any) -> Stage:
    """Another spec is another revision."""

    def stage(world: World) -> None:
        world.apply_spec(replicas=replicas, engine={"maxNumSeqs": revision}, rollout=rollout)

    return stage


def configured(
    revision: int, *, change: str = "reload", weight: str | None = None, **rollout: Any
) -> Stage:
    """A spec with two sources, in environment prod."""
    sources = [
        {"name": name, "secret": {"name": name}, "onChange": change} for name in ("store", "keys")
    ]
    prod = {"name": "prod", "sources": sources, **({"weight": weight} if weight else {})}

    def stage(world: World) -> None:
        world.sources.values.setdefault("store", "s1")
        world.sources.values.setdefault("keys", "k1")
        world.sources.restarting = set(world.sources.values) if change == "restart" else set()
        world.apply_spec(
            replicas=3,
            engine={"maxNumSeqs": revision},
            config={"environment": "prod", "environments": [prod]},
            tenants={
                "keysSecret": {"source": "keys"},
                "serverKeySecret": {"source": "store", "key": "server-key"},
            },
            rollout=rollout,
        )

    return stage


def value(source: str, new: str, *, bad: bool = False) -> Stage:
    """Somebody puts another value into a source."""

    def stage(world: World) -> None:
        world.sources.bad |= {new} if bad else set()
        world.sources.values[source] = new

    return stage


def note(**annotations: str | None) -> Stage:
    return lambda world: world.annotate(**annotations)


def both(*stages: Stage) -> Stage:
    def stage(world: World) -> None:
        for each in stages:
            each(world)

    return stage


def after(first: Stage, moments: int, then: Stage) -> Stage:
    """`then` happens in the middle of what `first` began."""

    def stage(world: World) -> None:
        first(world)
        world.live(moments)
        then(world)

    return stage


def count(errors: int) -> Stage:
    """Sidecars have seen enough of both revisions; the new one made this many errors."""
    return compare(
        Counts(requests=200, errors=errors, answers=200 - errors),
        Counts(requests=200, answers=200),
    )


def compare(canary: Counts, stable: Counts) -> Stage:
    """Each sidecar has counted this of the revision that is stable now, and of every other."""

    def stage(world: World) -> None:
        world.counts = _Counted(world.pointer or "", canary, stable)

    return stage


class _Counted(dict[str, dict[str, Counts]]):
    """Counts of every revision."""

    def __init__(self, stable: str, canary: Counts, of_stable: Counts) -> None:
        super().__init__()
        self._stable, self._canary, self._of_stable = stable, canary, of_stable

    def get(self, key: str, default: Any = None) -> Any:
        return {"text": self._of_stable if key == self._stable else self._canary}


WINDOW = {"rollbackWindow": {"seconds": 60}}
SURGE_FREE = {"maxSurge": 0, "maxUnavailable": 1}

SCENARIOS: dict[str, list[Stage]] = {
    "install": [spec(1)],
    "rolling": [spec(1), spec(2)],
    "rolling without surge": [spec(1, **SURGE_FREE), spec(2, **SURGE_FREE)],
    "one pod": [spec(1, 1), spec(2, 1)],
    "scaled meanwhile": [spec(1), after(spec(2), 4, spec(2, 5))],
    "to and fro": [spec(1), after(spec(2), 6, spec(1))],
    "third while rolling": [spec(1), after(spec(2), 6, spec(3))],
    "by annotation": [
        spec(1),
        both(spec(2), note(canary_weight="5")),
        note(canary_weight="50"),
        note(canary_weight=None),
        note(rollout_action="promote"),
    ],
    "aborted": [
        spec(1),
        both(spec(2), note(canary_weight="25")),
        note(rollout_action="abort"),
        note(rollout_action="retry"),
        note(rollout_action="abort"),
    ],
    "aborted while rolling": [
        spec(1),
        after(spec(2), 6, note(rollout_action="abort")),
    ],
    "third beside a canary": [
        spec(1),
        both(spec(2), note(canary_weight="50")),
        spec(3),
        note(rollout_action="promote"),
    ],
    "by steps": [
        spec(1, steps=STEPS),
        both(count(0), spec(2, steps=STEPS)),
    ],
    "judged bad": [
        spec(1, steps=STEPS),
        both(count(90), spec(2, steps=STEPS)),
    ],
    "paused and resumed": [
        spec(1, steps=[{"setWeight": 10}, {"pause": {}}]),
        spec(2, steps=[{"setWeight": 10}, {"pause": {}}]),
        note(rollout_action="resume"),
    ],
    "a way back": [spec(1, **WINDOW), after(spec(2, **WINDOW), 35, spec(1, **WINDOW))],
    "a value": [configured(1), value("store", "s2"), value("keys", "k2")],
    "a value amid steps": [
        both(count(0), configured(1, steps=STEPS)),
        after(both(count(0), configured(2, steps=STEPS)), 9, value("store", "s2")),
    ],
    "a bad value and a good one": [
        configured(1),
        value("store", "s2", bad=True),
        value("store", "s3"),
    ],
    "replaced for a value": [configured(1, change="restart"), value("store", "s2")],
    "asked to reload": [configured(1), note(reload_config="noon")],
    "weighed by its environment": [
        configured(1, weight="5"),
        configured(2, weight="5"),
        configured(2, weight="25"),
        note(canary_weight="50"),
        note(canary_weight=None),
        note(rollout_action="promote"),
    ],
    "restarted": [spec(1), note(restartedAt="noon"), note(restartedAt=None)],
    "to nothing and back": [spec(1), spec(1, 0), spec(2, 0), spec(2, 2)],
}


def told(name: str, world: World) -> World:
    """The scenario, to its end."""
    for stage in SCENARIOS[name]:
        stage(world)
        world.settled()
    return world
