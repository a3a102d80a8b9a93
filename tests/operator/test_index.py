"""The index: newer words win, gone is gone, and a list is believed in what is not newer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from chiasm_contract import names
from chiasm_operator.index import Index


def thing(name: str, version: int, owner: str | None = "reader", **more: Any) -> dict[str, Any]:
    labels = {names.LABEL_OWNER: owner} if owner else {}
    metadata = {
        "namespace": "n", "name": name, "resourceVersion": str(version), "labels": labels,
    }  # fmt: skip
    return {"kind": "Service", "metadata": metadata, **more}


def owned(index: Index, owner: str = "reader") -> dict[str, int]:
    return {
        item["metadata"]["name"]: int(item["metadata"]["resourceVersion"])
        for item in index.owned("n", owner)
    }


def test_a_newer_word_replaces_an_older_one_and_not_the_other_way_round() -> None:
    index = Index()
    assert index.put("Service", thing("a", 5))
    assert not index.put("Service", thing("a", 4))
    assert not index.put("Service", thing("a", 5)), "an echo of our own write is no news"
    assert index.put("Service", thing("a", 6))
    assert owned(index) == {"a": 6}


def test_what_is_gone_stays_gone_until_it_is_made_again() -> None:
    index = Index()
    index.put("Service", thing("a", 5))
    assert index.drop("Service", thing("a", 7))
    assert not index.put("Service", thing("a", 6)), "late word of the one that is gone"
    assert owned(index) == {}
    assert index.put("Service", thing("a", 8))
    assert not index.drop("Service", thing("a", 7)), "late word of its end"
    assert owned(index) == {"a": 8}


def test_a_label_that_changes_moves_the_object() -> None:
    index = Index()
    index.put("Service", thing("a", 5))
    index.put("Service", thing("a", 6, owner="other"))
    assert (owned(index), owned(index, "other")) == ({}, {"a": 6})
    index.put("Service", thing("a", 7, owner=None))
    assert owned(index, "other") == {}
    assert index.get("Service", "n", "a") is not None


def test_kinds_do_not_meet() -> None:
    index = Index()
    index.put("Service", thing("a", 5))
    index.put("ConfigMap", thing("a", 9))
    index.replace("ConfigMap", [], 10)
    assert owned(index) == {"a": 5}


def test_a_list_tells_what_no_watch_did() -> None:
    index = Index()
    index.put("Service", thing("lost", 3, owner="first"))
    index.put("Service", thing("same", 4, owner="second"))
    index.put("Service", thing("newer", 12, owner="third"))
    index.put("Service", thing("stale", 5, owner="fourth"))
    listed = [
        thing("same", 4, owner="second"),
        thing("stale", 8, owner="fourth"),
        thing("found", 9, owner="fifth"),
    ]
    news = index.replace("Service", listed, 10)
    assert news == {("n", "first"), ("n", "fourth"), ("n", "fifth")}
    assert index.get("Service", "n", "newer") is not None, "made after the list was taken"
    assert index.get("Service", "n", "lost") is None


def test_a_list_tells_both_of_a_child_that_changed_hands() -> None:
    index = Index()
    index.put("Service", thing("a", 5, owner="first"))
    news = index.replace("Service", [thing("a", 6, owner="second")], 10)
    assert news == {("n", "first"), ("n", "second")}


def test_a_list_from_before_an_end_brings_nothing_back() -> None:
    index = Index()
    index.put("Service", thing("a", 5))
    index.drop("Service", thing("a", 11))
    assert index.replace("Service", [thing("a", 5)], 10) == set()
    assert owned(index) == {}


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_order_the_end_is_the_truth(seed: int) -> None:
    """Each object's story is told in order but late and with gaps; a last list makes up for it."""
    chance = random.Random(seed)
    index, truth, late = Index(), dict[str, dict[str, Any]](), list[tuple[str, Any]]()
    for version in range(1, 200):
        name, owner = chance.choice("abcdef"), chance.choice(("reader", "other"))
        if name in truth and chance.random() < 0.3:
            del truth[name]
            late.append(("drop", thing(name, version, owner)))
        else:
            truth[name] = thing(name, version, owner)
            late.append(("put", truth[name]))
        if chance.random() < 0.1:
            late.pop()  # no watch tells of it
        while late and chance.random() < 0.5:
            what, manifest = late.pop(0)
            (index.put if what == "put" else index.drop)("Service", manifest)
        if chance.random() < 0.05:
            index.replace("Service", truth.values(), version)
            for held in truth.values():
                assert index.get("Service", "n", held["metadata"]["name"]) == held
    index.replace("Service", truth.values(), 200)
    for what, manifest in late:
        (index.put if what == "put" else index.drop)("Service", manifest)
    assert {**owned(index), **owned(index, "other")} == {
        name: int(each["metadata"]["resourceVersion"]) for name, each in truth.items()
    }
