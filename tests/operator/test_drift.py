"""When a live object counts as what was applied."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_operator import render
from chiasm_operator.reconcile.drift import differs, stamped
from chiasm_operator.render import Target


def as_stored(node: Any) -> Any:
    """`node` as the API server gives it back: empty things dropped, defaults and extras added."""
    if isinstance(node, dict):
        kept = {key: as_stored(value) for key, value in node.items() if value not in ({}, [])}
        return {**kept, "addedByTheServer": 1}
    return [as_stored(item) for item in node] if isinstance(node, list) else node


@pytest.mark.parametrize("name", ["minimal", "complete", "claim", "autoscaled", "sharing"])
def test_what_the_server_adds_is_no_drift(name: str, make_target: Callable[..., Target]) -> None:
    for manifest in map(stamped, render.children(make_target(name))):
        assert not differs(manifest, as_stored(manifest))


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    match node:
        case dict() if node:
            return [each for key, value in node.items() for each in paths(value, (*path, key))]
        case list() if node:
            return [each for key, value in enumerate(node) for each in paths(value, (*path, key))]
        case dict() | list():
            return []
    return [path]


@pytest.mark.parametrize("kind", range(6))
def test_every_field_changed_by_hand_is_drift(
    kind: int, make_target: Callable[..., Target]
) -> None:
    manifest = stamped(render.children(make_target("complete"))[kind])
    for path in paths(manifest):
        live = copy.deepcopy(manifest)
        node = live
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = _other(node[path[-1]])
        assert differs(manifest, live), path


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
    return "99Ti" if value[:1].isdigit() else f"{value}x"


def test_a_field_that_is_no_longer_wanted_is_drift(make_target: Callable[..., Target]) -> None:
    before = stamped(render.children(make_target("complete"))[0])
    after = stamped(render.children(make_target("claim"))[0])
    without = {**before, "metadata": {**after["metadata"], "name": before["metadata"]["name"]}}
    assert differs(without, before)


@pytest.mark.parametrize(
    ("desired", "live", "drift"),
    [
        ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}, False),
        ({"requests": {"memory": "1024Mi"}}, {"requests": {"memory": "1Gi"}}, False),
        ({"requests": {"memory": "1024Mi"}}, {"requests": {"memory": "2Gi"}}, True),
        ({"requests": {"memory": "1Gi"}}, {"requests": {}}, True),
        ({"limits": {}}, {}, False),
        ({"egress": []}, {}, False),
        ({"egress": []}, {"egress": [{}]}, True),
        ({"name": "1000m"}, {"name": "1"}, True),
        ({"a": 1}, None, True),
    ],
)
def test_cases(desired: Any, live: Any, drift: bool) -> None:
    assert differs(desired, live) is drift
