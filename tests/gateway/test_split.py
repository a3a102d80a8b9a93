"""Requests through a real Envoy: who answers, and that none fails while weights change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gateway.conftest import Site

pytestmark = pytest.mark.gateway

NUM = 100
HEADER = "x-canary"


@contextmanager
def asking(site: Site) -> Iterator[list[int]]:
    """Somebody asks all the while; the statuses so far."""
    statuses: list[int] = []
    over = threading.Event()

    def go_on() -> None:
        while not over.is_set():
            statuses.append(site.ask())

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("split", "first"), [("gateway", 2), ("sidecars", 4)])
def test_a_canary_behind_envoy(site: Site, split: str, first: int) -> None:
    site.apply(split, first)
    site.until_ready()
    assert site.condition("RouteAccepted") == "True"
    stable = site.resource["status"]["revision"]

    site.annotate("canary-weight=20", f"canary-by-header={HEADER}")
    site.apply(split, first + 1)
    site.until_synced("20")
    canary = site.resource["status"]["revision"]
    assert canary != stable

    found = site.share(NUM)
    if split == "sidecars":
        assert found == {stable: 80, canary: 20}, "exactly"
    else:
        assert 6 <= found[canary] <= 36, "by chance: 20 +- 4 standard deviations"
    assert site.share(10, **{HEADER: "always"})[canary] == 10
    assert site.share(10, **{HEADER: "never"})[stable] == 10

    with asking(site) as statuses:
        for weight in (50, 5, 0):
            site.weigh(weight)
    assert statuses
    assert set(statuses) == {200}
    assert site.share(30)[canary] == 0

    with asking(site) as statuses:
        site.annotate(f"rollout-action=promote:{canary}")
        site.until_ready()
    assert set(statuses) == {200}
    assert site.share(10)[canary] == 10
    site.annotate("canary-weight-", "rollout-action-", "canary-by-header-")
